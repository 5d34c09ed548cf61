package manager

import (
	"net"
	"slices"
	"sync"
)

// door lets in only so many connections. For one more, the oldest goes of the address that has most: so nobody keeps others out, unless
// they all come from one address.
type door struct {
	net.Listener
	most int

	mu    sync.Mutex
	all   int
	lists map[string][]*connection // by address, the oldest first
}

// connection is one that was let in.
type connection struct {
	net.Conn
	door    *door
	address string
}

// Accept gives the next one.
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
		gone.Conn.Close() // its server notices, and closes it for good
	}
	return c, nil
}

// enter notes a connection, and gives the one that goes for it.
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

// Close ends it.
func (c *connection) Close() error {
	c.door.mu.Lock()
	c.door.remove(c)
	c.door.mu.Unlock()
	return c.Conn.Close()
}
