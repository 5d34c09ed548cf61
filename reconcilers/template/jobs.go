package template

import (
	"context"
	"sync"
	"sync/atomic"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// jobs are the imports of this process. They take longer than a pass, and end with the process: what they leave behind then is seen in
// the folder by whoever comes next.
type jobs struct {
	mu     sync.Mutex
	all    map[string]*job
	living context.Context
	die    context.CancelFunc
	ending sync.WaitGroup
}

// job is one import.
type job struct {
	mark    Mark
	name    string // what is imported is called so meanwhile
	step    atomic.Value
	percent atomic.Int32
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // once it is done
}

func newJobs() *jobs {
	j := &jobs{all: map[string]*job{}}
	j.living, j.die = context.WithCancel(context.Background())
	return j
}

// Start ends all jobs with ctx. The manager calls it.
func (j *jobs) Start(ctx context.Context) error {
	<-ctx.Done()
	j.die()
	j.ending.Wait()
	return nil
}

// begin has the work done beside the passes, unless something is being done for the key already. Who waits for it is told at its end.
func (j *jobs) begin(key string, mark Mark, name string, work func(context.Context, *job) error, told func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.all[key] != nil {
		return
	}
	one := &job{mark: mark, name: name, done: make(chan struct{})}
	one.at(v1alpha1.VSphereTemplateDownloading, 0)
	ctx, cancel := context.WithCancel(j.living)
	one.cancel = cancel
	j.all[key] = one
	j.ending.Go(func() {
		defer cancel()
		one.err = work(ctx, one)
		close(one.done)
		told()
	})
}

// at says how far the job is.
func (o *job) at(step v1alpha1.VSphereTemplateStep, percent int32) {
	o.step.Store(step)
	o.percent.Store(percent)
}

// under gives the job of the key. One that has ended is given once, and forgotten.
func (j *jobs) under(key string) (one *job, ended bool) {
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
