package manager

import (
	"net"
	"slices"
	"sync"
)

// door limits the number of connections. If there are too many, it closes the oldest one of the address with the most connections, so
// that one address cannot block others.
type door struct {
	net.Listener
	most int

	mu    sync.Mutex
	all   int
	lists map[string][]*connection // by address, the oldest first
}

type connection struct {
	net.Conn
	door    *door
	address string
}

func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	address, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		address = conn.RemoteAddr().String()
	}
	c := &connection{conn, d, address}
	if gone := d.enter(c); gone != nil {
		gone.Conn.Close() // its server then releases it
	}
	return c, nil
}

// enter registers a connection and returns the one to close for it, if any.
func (d *door) enter(c *connection) (gone *connection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lists == nil {
		d.lists = map[string][]*connection{}
	}
	if d.all >= d.most {
		largest := ""
		for address, list := range d.lists {
			if len(list) > len(d.lists[largest]) {
				largest = address
			}
		}
		gone = d.lists[largest][0]
		d.remove(gone)
	}
	d.lists[c.address] = append(d.lists[c.address], c)
	d.all++
	return gone
}

func (d *door) remove(c *connection) {
	list := d.lists[c.address]
	i := slices.Index(list, c)
	if i < 0 {
		return
	}
	d.all--
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(d.lists, c.address)
	} else {
		d.lists[c.address] = list
	}
}

func (c *connection) Close() error {
	c.door.mu.Lock()
	c.door.remove(c)
	c.door.mu.Unlock()
	return c.Conn.Close()
}
