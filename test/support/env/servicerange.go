package env

import (
	"fmt"
	"net"
	"os"
)

// Service addresses come out of 127.96.0.0/12, a /24 for each control plane.
const (
	rangeFirstOctet = 96
	rangeCount      = 16 << 8
)

// leaseServiceRange finds a range of Service addresses that no other control plane on this machine uses, so that two of
// them can have a webhook server on the same port at the same time.
//
// A range is held by a socket in Linux' abstract namespace, whose name ends with the process at the latest. It is local
// to the network namespace, just as loopback addresses are.
func leaseServiceRange() (cidr string, release func(), err error) {
	var last error
	for i := range rangeCount {
		n := (os.Getpid() + i) % rangeCount // not always the same first, only to find a free one soon
		cidr := fmt.Sprintf("127.%d.%d.0/24", rangeFirstOctet+n>>8, n&0xff)
		socket, err := net.Listen("unix", "@sallyport-env-services-"+cidr)
		if err != nil {
			last = err
			continue
		}
		return cidr, func() { _ = socket.Close() }, nil
	}
	return "", nil, fmt.Errorf("no free range of Service addresses: %w", last)
}
