package cli

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// agrees is how far the local clock may be off to be used, because it is more precise than the date of a response.
const agrees = 2 * time.Second

// Clock is the clock of the API server, with which those of replicas agree; that of a workstation may be hours off. It is known from the
// first response on. Before, and if responses have no date, it is the local clock.
type Clock struct {
	// Local is the local clock.
	Local func() time.Time

	mu    sync.Mutex
	ahead time.Duration // how much the API server's clock is ahead of the local one
	is    bool          // ahead is known
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Local().Add(c.ahead)
}

// wrap has the clients of a config set the clock.
func (c *Clock) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return clocked{next, c} })
}

func (c *Clock) set(date string) {
	at, err := http.ParseTime(date)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || c.is {
		return
	}
	c.is = true
	if ahead := at.Sub(c.Local()); ahead.Abs() > agrees {
		c.ahead = ahead
	}
}

type clocked struct {
	http.RoundTripper
	clock *Clock
}

// RoundTrip implements http.RoundTripper.
func (c clocked) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.clock.set(response.Header.Get("Date"))
	}
	return response, err
}
