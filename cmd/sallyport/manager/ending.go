package manager

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// drainPatience is how long the manager waits at shutdown for reviews in progress. It is longer than the webhook timeout.
const drainPatience = 10 * time.Second

// If the server closes an idle connection while the API server sends a request on it, that request is lost. The risk is small once no
// request has arrived for quiet. The shutdown waits for that, but not longer than quietPatience.
const quiet, quietPatience = time.Second, 5 * time.Second

var errEnding = errors.New("this replica is shutting down")

// ending is the graceful shutdown of a replica, in which no request may fail:
//
//  1. The replica becomes unready immediately, and its Pod leaves the Service.
//  2. The replica keeps serving for the delay, because the change takes time to reach all API servers. Each reply closes its
//     connection, so that API servers, which reuse connections, open the next one to another replica. An API server can hold many
//     connections and each request closes only one, so the delay is extended while requests arrive.
//  3. The replica accepts no new connections and finishes requests in progress.
//  4. The rest of the manager stops: reconcilers, caches, and finally the lease of the leader, so that no other replica takes it
//     earlier.
type ending struct {
	delay time.Duration
	begun atomic.Bool
	asked atomic.Int64 // the requests since then

	served  atomic.Bool   // the webhook server was started
	stop    chan struct{} // closed: no more connections are taken
	drained chan struct{} // closed: the webhook server has ended
}

func newEnding(delay time.Duration) *ending {
	return &ending{delay: delay, stop: make(chan struct{}), drained: make(chan struct{})}
}

func (e *ending) ready(*http.Request) error {
	if e.begun.Load() {
		return errEnding
	}
	return nil
}

// run runs a manager until it stops by itself, as one does that has lost its lease, or until the context ends. The shutdown is complete then.
func (e *ending) run(ctx context.Context, manager func(context.Context) error) error {
	managed, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	forget := context.AfterFunc(ctx, func() {
		defer end()
		e.begun.Store(true)
		e.linger(managed)
		close(e.stop)
		if e.served.Load() {
			await(managed, drainPatience, e.drained)
		}
	})
	defer forget()
	err := manager(managed)
	if e.served.Load() {
		await(context.Background(), e.delay+quietPatience+drainPatience, e.drained)
	}
	return err
}

// linger returns when the delay has passed and no request has arrived for quiet, or at the latest after quietPatience more.
func (e *ending) linger(ctx context.Context) {
	last := min(quiet, e.delay)
	await(ctx, e.delay-last, nil)
	for end := quietPatience; last > 0 && ctx.Err() == nil; end -= last {
		before := e.asked.Load()
		await(ctx, last, nil)
		if e.asked.Load() == before || end <= 0 {
			return
		}
	}
}

// await returns after that time, or before if it is done or the context has ended.
func await(ctx context.Context, longest time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	case <-ctx.Done():
	}
}

// endingServer is a webhook server that takes part in the shutdown.
type endingServer struct {
	webhook.Server
	ending *ending
}

func (s endingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ending.begun.Load() {
			s.ending.asked.Add(1)
			w.Header().Set("Connection", "close")
		}
		hook.ServeHTTP(w, r)
	}))
}

// Start serves until the ending says so. If the manager stops by itself, it serves for the delay: a manager that has lost its lease ends
// the context at once, when the Service still has the replica.
func (s endingServer) Start(ctx context.Context) error {
	s.ending.served.Store(true)
	defer close(s.ending.drained)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		select {
		case <-s.ending.stop:
		case <-ctx.Done():
			s.ending.begun.Store(true)
			s.ending.linger(serving)
		case <-serving.Done():
		}
		stop()
	}()
	return s.Server.Start(serving)
}

// endAtTheSecondSignal lets a second signal end the process immediately after the first one has ended the context.
func endAtTheSecondSignal(ctx context.Context) (forget func() bool) {
	return context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })
}
