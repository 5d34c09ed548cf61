package failover

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"sallyport.dev/sallyport/test/env/install"
)

// splitter takes the connections to the Service and gives them to the managers in turn, as kube-proxy would. One that does not
// take them is passed over.
type splitter struct {
	listener net.Listener

	mu       sync.Mutex
	backends []string
	taken    map[string]int
	turn     int
	open     map[net.Conn]bool
}

func split(address string, backends []string) (*splitter, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(install.Port)))
	if err != nil {
		return nil, fmt.Errorf("listening on the Service's address: %w", err)
	}
	s := &splitter{listener: listener, backends: backends, taken: map[string]int{}, open: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s, nil
}

func (s *splitter) serve(conn net.Conn) {
	defer conn.Close()
	back := s.dial()
	if back == nil {
		return
	}
	defer back.Close()
	defer s.track(conn)()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{conn, back}, {back, conn}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // until one of the two ends
			done <- struct{}{}
		}()
	}
	<-done
}

// dial connects to the one whose turn it is, or else to the other.
func (s *splitter) dial() net.Conn {
	s.mu.Lock()
	first := s.turn
	s.turn++
	s.mu.Unlock()
	for i := range s.backends {
		backend := s.backends[(first+i)%len(s.backends)]
		if conn, err := net.Dial("tcp", backend); err == nil {
			s.mu.Lock()
			s.taken[backend]++
			s.mu.Unlock()
			return conn
		}
	}
	return nil
}

func (s *splitter) track(conn net.Conn) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[conn] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, conn)
	}
}

// reset cuts all connections: the API server keeps one for all its requests, and has to make another.
func (s *splitter) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		conn.Close()
	}
}

// connections counts them by backend.
func (s *splitter) connections(backend string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[backend]
}

func (s *splitter) close() {
	s.listener.Close()
	s.reset()
}
