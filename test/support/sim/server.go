package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// Moment is a moment of a call.
type Moment string

const (
	// Before is when the call has arrived and nothing has been done.
	Before Moment = "before"
	// After is when it has been done and the caller has heard nothing of it.
	After Moment = "after"
)

// Call is a call that arrived.
type Call struct {
	// Client is the name that the caller gave itself.
	Client string
	// Verb is what was called, Machine what it is about, Mode the argument of PowerOff.
	Verb    runtime.Verb
	Machine runtime.Machine
	Mode    runtime.Mode
	// Began and Ended are when it arrived and when it was over. Ended is zero while it is not.
	Began, Ended time.Time
}

// Interceptor is called at both moments of every call, and may take its time. With false the connection is cut: before, the
// call is not done, and after, its reply is lost.
type Interceptor func(moment Moment, call Call) (goOn bool)

// Server serves a world on a loopback address.
type Server struct {
	// Address is where.
	Address string

	world  *fake.World
	server *http.Server

	mu          sync.Mutex
	calls       []*Call
	interceptor Interceptor
}

// Serve serves the world until Close.
func Serve(world *fake.World) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serving the simulated runtime: %w", err)
	}
	s := &Server{Address: listener.Addr().String(), world: world}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, s.serve)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(listener) }() // it ends with Close, and only so
	return s, nil
}

// Close ends it, and the calls that are under way.
func (s *Server) Close() error { return s.server.Close() }

// Intercept has all calls from now on intercepted, or none.
func (s *Server) Intercept(i Interceptor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interceptor = i
}

// Calls gives the calls that arrived, in the order in which they did.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Call, 0, len(s.calls))
	for _, c := range s.calls {
		all = append(all, *c)
	}
	return slices.Clip(all)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var q request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	end := s.begin(q)
	defer end()
	if !s.intercept(Before, q) {
		panic(http.ErrAbortHandler)
	}
	ctx := r.Context()
	if !q.Deadline.IsZero() { // looked at now, by the clock: a timer of our own may fire a little later than the caller's
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, q.Deadline)
		defer cancel()
	}
	a := s.do(ctx, q)
	if !s.intercept(After, q) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // a caller that is gone hears nothing
}

// begin logs the call, and gives what logs its end.
func (s *Server) begin(q request) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := q.call()
	c.Began = time.Now()
	s.calls = append(s.calls, &c)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.Ended = time.Now()
	}
}

func (q request) call() Call {
	return Call{Client: q.Client, Verb: q.Verb, Machine: q.Machine, Mode: q.Mode}
}

func (s *Server) intercept(moment Moment, q request) bool {
	s.mu.Lock()
	i := s.interceptor
	s.mu.Unlock()
	return i == nil || i(moment, q.call())
}

// do has the world do it.
func (s *Server) do(ctx context.Context, q request) (a reply) {
	c := s.world.Client(q.Client)
	var err error
	switch q.Verb {
	case runtime.VerbObserve:
		a.Observation, err = c.Observe(ctx, q.Machine)
	case runtime.VerbEnsure:
		a.InstanceID, err = c.Ensure(ctx, q.Machine)
	case runtime.VerbPowerOn:
		err = c.PowerOn(ctx, q.Machine)
	case runtime.VerbPowerOff:
		err = c.PowerOff(ctx, q.Machine, q.Mode)
	case runtime.VerbCancel:
		err = c.Cancel(ctx, q.Machine, q.Task)
	case runtime.VerbDelete:
		err = c.Delete(ctx, q.Machine)
	case runtime.VerbMigrate:
		err = c.Migrate(ctx, q.Machine, q.Target)
	case runtime.VerbObserveDisk:
		a.Disk, err = c.ObserveDisk(ctx, q.Disk)
	case runtime.VerbEnsureDisk:
		a.DiskID, err = c.EnsureDisk(ctx, q.Disk)
	case runtime.VerbDeleteDisk:
		err = c.DeleteDisk(ctx, q.Disk)
	case runtime.VerbAttach:
		err = c.Attach(ctx, q.Machine, q.Disk)
	case runtime.VerbDetach:
		err = c.Detach(ctx, q.Machine, q.Disk.UID)
	default:
		err = errors.New("there is no verb " + string(q.Verb))
	}
	a.Failure = failureOf(err)
	return a
}
