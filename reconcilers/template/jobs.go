package template

import (
	"context"
	"sync"
	"sync/atomic"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// jobs are the imports of this process. They take longer than a pass and end with the process; a later process finds
// their leftovers in the folder.
type jobs struct {
	mu     sync.Mutex
	all    map[string]*job
	ctx    context.Context
	cancel context.CancelFunc
	ending sync.WaitGroup
}

type job struct {
	mark    templates.Mark
	name    string // temporary name of the import
	step    atomic.Value
	percent atomic.Int32
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // set once done is closed
}

func newJobs() *jobs {
	j := &jobs{all: map[string]*job{}}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	return j
}

// Start cancels all jobs when ctx ends. The manager calls it.
func (j *jobs) Start(ctx context.Context) error {
	<-ctx.Done()
	j.cancel()
	j.ending.Wait()
	return nil
}

// begin runs work in a goroutine, unless there is a job for the key already, and calls done afterwards. It returns the job, which may
// have ended meanwhile: find still returns it once, with its error.
func (j *jobs) begin(key string, mark templates.Mark, name string, work func(context.Context, *job) error, done func()) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	if running := j.all[key]; running != nil {
		return running
	}
	one := &job{mark: mark, name: name, done: make(chan struct{})}
	one.at(v1alpha1.VSphereTemplateDownloading, 0)
	ctx, cancel := context.WithCancel(j.ctx)
	one.cancel = cancel
	j.all[key] = one
	j.ending.Go(func() {
		defer cancel()
		one.err = work(ctx, one)
		close(one.done)
		done()
	})
	return one
}

// setProgress records the progress of the job.
func (o *job) at(step v1alpha1.VSphereTemplateStep, percent int32) {
	o.step.Store(step)
	o.percent.Store(percent)
}

// find returns the job of the key. A finished job is returned once and removed.
func (j *jobs) find(key string) (one *job, ended bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one = j.all[key]
	if one == nil {
		return nil, false
	}
	select {
	case <-one.done:
		delete(j.all, key)
		return one, true
	default:
		return one, false
	}
}
