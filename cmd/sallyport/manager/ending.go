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

// drainPatience is how long the end of the manager waits for reviews that are being answered, which is longer than the API server
// waits for any.
const drainPatience = 10 * time.Second

// Closing an idle connection loses a request that the API server is sending over it just then, which a server cannot know. The risk is
// small once no request has come for quiet; the end of the manager waits for that, but no longer than quietPatience.
const quiet, quietPatience = time.Second, 5 * time.Second

// errEnding is why a replica is not ready when it ends.
var errEnding = errors.New("this replica is about to end")

// ending is the orderly end of a replica, in which no request may fail:
//
//  1. At once it is not ready any more, and its Pod is taken out of the Service.
//  2. For the delay it goes on as before, because that takes a while to be known everywhere. Each reply ends its connection, so
//     that the API server, which keeps connections open for its next requests, makes that one to another replica. It may keep
//     many, of which each request ends one: the delay is longer while there are requests.
//  3. Connections are not taken any more, and what is being answered is answered to the end.
//  4. Only then does the rest of the manager end: reconcilers, caches, and the lease of the one that leads, which so is not taken
//     over before.
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

// ready is a readiness probe.
func (e *ending) ready(*http.Request) error {
	if e.begun.Load() {
		return errEnding
	}
	return nil
}

// run runs a manager until it ends by itself, or the context ends and the steps have been taken.
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
	return manager(managed)
}

// linger returns after the delay and once no request has come for quiet, or after quietPatience more.
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

// endingServer is a webhook server that takes part in an ending.
type endingServer struct {
	webhook.Server
	ending *ending
}

// Register adds an endpoint.
func (s endingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ending.begun.Load() {
			s.ending.asked.Add(1)
			w.Header().Set("Connection", "close")
		}
		hook.ServeHTTP(w, r)
	}))
}

// Start serves until the context ends or the ending says so.
func (s endingServer) Start(ctx context.Context) error {
	s.ending.served.Store(true)
	defer close(s.ending.drained)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-s.ending.stop:
			stop()
		case <-serving.Done():
		}
	}()
	return s.Server.Start(serving)
}

// endAtTheSecondSignal has the next signal end the process at once, when the first one has ended the context.
func endAtTheSecondSignal(ctx context.Context) (forget func() bool) {
	return context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })
}
