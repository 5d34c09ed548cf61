package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// probePeriod is how often a balancer asks whether a backend is ready, and probePatience how long it waits for the answer.
	probePeriod   = 100 * time.Millisecond
	probePatience = 5 * time.Second
)

// Backend is one of the processes behind a balancer.
type Backend struct {
	// Address is where it takes connections.
	Address string
	// Ready tells whether it is to be given any: see ReadyAt.
	Ready func(context.Context) bool
}

// ReadyAt asks a readiness probe by its URL.
func ReadyAt(url string) func(context.Context) bool {
	// A connection for each question: one that is kept says nothing of whether the process takes others.
	probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		response, err := probe.Do(request)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
}

// Balancer does for a Service on a local control plane what kube-proxy and the readiness probes of kubelets do in a cluster: it
// gives each new connection to the next backend that is ready. Connections that are open stay where they are.
type Balancer struct {
	listener net.Listener
	backends []*backend
	turn     atomic.Uint64
	stop     context.CancelFunc
	working  sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // nil once it is closed
}

type backend struct {
	Backend
	ready atomic.Bool
	taken atomic.Int64
}

// NewBalancer starts one that takes connections at an address, host and port.
func NewBalancer(address string, replicas ...Backend) (*Balancer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on the Service's address: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Balancer{listener: listener, stop: stop, open: map[net.Conn]bool{}}
	for _, r := range replicas {
		one := &backend{Backend: r}
		b.backends = append(b.backends, one)
		b.working.Go(func() { one.probe(ctx) })
	}
	b.working.Go(b.accept)
	return b, nil
}

// Address is where it takes connections.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Taken counts the connections that a backend has been given.
func (b *Balancer) Taken(address string) int {
	for _, one := range b.backends {
		if one.Address == address {
			return int(one.taken.Load())
		}
	}
	return 0
}

// Ready reports whether a backend was ready when it was last probed.
func (b *Balancer) Ready(address string) bool {
	return slices.ContainsFunc(b.backends, func(one *backend) bool { return one.Address == address && one.ready.Load() })
}

// Reset cuts all connections: the API server keeps some for its next requests, and has to make others.
func (b *Balancer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.open {
		_ = conn.Close()
	}
}

// Close cuts all connections, takes no more and returns when all is quiet.
func (b *Balancer) Close() error {
	b.stop()
	err := b.listener.Close()
	b.Reset()
	b.mu.Lock()
	b.open = nil
	b.mu.Unlock()
	b.working.Wait()
	return err
}

// probe keeps asking whether a backend is ready.
func (b *backend) probe(ctx context.Context) {
	ticker := time.NewTicker(probePeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, probePatience)
		b.ready.Store(b.Ready(asking))
		cancel()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (b *Balancer) accept() {
	for {
		conn, err := b.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		b.working.Go(func() { b.serve(conn) })
	}
}

// serve passes on what comes over a connection, in both directions, until both ends have ended theirs.
func (b *Balancer) serve(conn net.Conn) {
	front, kept := b.track(conn)
	defer front()
	if !kept {
		return
	}
	to := b.dial()
	if to == nil {
		return
	}
	back, kept := b.track(to)
	defer back()
	if !kept {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pass(to, conn) })
	both.Go(func() { pass(conn, to) })
	both.Wait()
}

// dial connects to the next backend that is ready. Who is ready and takes no connections costs the client its own, as in a cluster.
func (b *Balancer) dial() net.Conn {
	var ready []*backend
	for _, one := range b.backends {
		if one.ready.Load() {
			ready = append(ready, one)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	one := ready[b.turn.Add(1)%uint64(len(ready))]
	conn, err := net.Dial("tcp", one.Address)
	if err != nil {
		return nil
	}
	one.taken.Add(1)
	return conn
}

// track remembers a connection until it is forgotten, which closes it.
func (b *Balancer) track(conn net.Conn) (forget func(), kept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept = b.open != nil; kept {
		b.open[conn] = true
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		_ = conn.Close()
		delete(b.open, conn)
	}, kept
}

// pass copies until one end ends, and has the other know of it.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
	_ = from.Close()
}
