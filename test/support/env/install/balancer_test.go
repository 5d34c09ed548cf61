package install

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport/test/support/step"
)

// echoing is a backend that answers each line with its name.
type echoing struct {
	listener net.Listener
	ready    atomic.Bool
}

func newEchoing(t *testing.T, name string) *echoing {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	e := &echoing{listener: listener}
	e.ready.Store(true)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewReader(conn); ; {
					if _, err := lines.ReadString('\n'); err != nil {
						_, _ = io.WriteString(conn, "bye\n")
						return
					}
					_, _ = io.WriteString(conn, name+"\n")
				}
			}()
		}
	}()
	return e
}

func (e *echoing) backend() Backend {
	return Backend{Address: e.listener.Addr().String(), Ready: func(context.Context) bool { return e.ready.Load() }}
}

func ask(conn net.Conn) (string, error) {
	if _, err := io.WriteString(conn, "who\n"); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func TestBalancer(t *testing.T) {
	a, b := newEchoing(t, "a"), newEchoing(t, "b")
	b.ready.Store(false)
	balancer, err := NewBalancer("127.0.0.1:0", a.backend(), b.backend())
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", balancer.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	who := func() string {
		answer, err := ask(dial())
		if err != nil {
			return ""
		}
		return answer
	}
	eventually := func(what string, is func() bool) {
		t.Helper()
		err := step.Await(t.Context(), func(context.Context) (bool, error) { return is(), nil })
		if err != nil {
			t.Fatalf("waiting until %s: %v", what, err)
		}
	}
	eventually("a is known to be ready", func() bool { return who() == "a\n" })
	for range 5 {
		if got := who(); got != "a\n" {
			t.Fatalf("b is not ready, and got it from %q", got)
		}
	}
	kept := dial()
	if got, err := ask(kept); got != "a\n" {
		t.Fatal(got, err)
	}

	b.ready.Store(true)
	eventually("b is known to be ready", func() bool { return who() == "b\n" })
	before := balancer.Taken(a.backend().Address)
	for range 10 {
		who()
	}
	if got := balancer.Taken(a.backend().Address) - before; got != 5 {
		t.Errorf("a got %d of 10 connections", got)
	}

	a.ready.Store(false)
	eventually("a is known not to be ready", func() bool { return who()+who() == "b\nb\n" })
	if got, err := ask(kept); got != "a\n" {
		t.Errorf("a connection that is open stays where it is: %q, %v", got, err)
	}
	// One end of a connection may end before the other.
	if err := kept.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(kept); string(got) != "bye\n" || err != nil {
		t.Errorf("the last answer: %q, %v", got, err)
	}

	_ = b.listener.Close()
	if got := who(); got != "" {
		t.Errorf("nobody takes connections, and got %q", got)
	}
	open := dial()
	if err := balancer.Close(); err != nil {
		t.Error(err)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("it is closed, and a connection is not")
	}
	if _, err := net.Dial("tcp", balancer.Address()); err == nil {
		t.Error("it is closed and takes connections")
	} else if opErr := new(net.OpError); !errors.As(err, &opErr) {
		t.Error(err)
	}
}
