//go:build !race

package vcenter

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// door is an address at which a vCenter can be, or be away.
type door struct {
	address string
	behind  string

	mu       sync.Mutex
	listener net.Listener
	mute     bool
	inside   []net.Conn
	all      sync.WaitGroup
}

// newDoor gives a door to a URL. It is shut.
func newDoor(t *testing.T, to string) *door {
	t.Helper()
	behind, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{address: listener.Addr().String(), behind: behind.Host}
	_ = listener.Close()
	t.Cleanup(d.shut)
	return d
}

func (d *door) url() string { return "https://" + d.address }

// shut ends all connections and refuses others.
func (d *door) shut() {
	d.mu.Lock()
	if d.listener != nil {
		_ = d.listener.Close()
	}
	for _, conn := range d.inside {
		_ = conn.Close()
	}
	d.listener, d.inside = nil, nil
	d.mu.Unlock()
	d.all.Wait()
}

// open lets everybody in, or, if it is mute, has everybody wait for an answer for ever.
func (d *door) open(t *testing.T, mute bool) {
	t.Helper()
	d.shut()
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.listener, d.mute = listener, mute
	d.mu.Unlock()
	d.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.enter(conn)
		}
	})
}

func (d *door) enter(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener == nil {
		_ = conn.Close()
		return
	}
	d.inside = append(d.inside, conn)
	if d.mute {
		return
	}
	behind, err := net.Dial("tcp", d.behind)
	if err != nil {
		_ = conn.Close()
		return
	}
	d.inside = append(d.inside, behind)
	for _, way := range [][2]net.Conn{{conn, behind}, {behind, conn}} {
		d.all.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		})
	}
}
