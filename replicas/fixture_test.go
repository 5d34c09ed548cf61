package replicas

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) { install.Main(m) }

// fixture is a namespace with replicas in it.
type fixture struct {
	step.T
	api       client.WithWatch
	config    *rest.Config
	namespace string
	clock
}

// clock is one that is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	api, namespace := install.Shared(t, "replicas-")
	return &fixture{
		T: step.T{T: t}, api: api, config: env.Shared(t).Config, namespace: namespace, clock: clock{now: time.Now().Truncate(time.Millisecond)},
	}
}

// replica is one that is driven by hand, by the clock of the fixture.
func (f *fixture) replica(name string) *Replica {
	f.Helper()
	return f.replicaOf(f.config, Options{Name: name, Now: f.Now})
}

func (f *fixture) replicaOf(config *rest.Config, o Options) *Replica {
	f.Helper()
	o.Namespace = f.namespace
	r, err := New(config, o)
	f.Must(err)
	return r
}

// renew writes the Lease of a replica.
func (f *fixture) renew(r *Replica) {
	f.Helper()
	f.Must(r.write(f.Context(), logr.Discard()))
}

// start runs a replica, with the real clock, until the test or stop ends it.
func (f *fixture) start(config *rest.Config, o Options) (r *Replica, stop func()) {
	f.Helper()
	r = f.replicaOf(config, o)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Start(ctx); err != nil {
			f.Error(err)
		}
	})
	stop = func() {
		cancel()
		done.Wait()
	}
	f.Cleanup(stop)
	return r, stop
}

// leases gives all that are there, by name.
func (f *fixture) leases() map[string]*coordinationv1.Lease {
	f.Helper()
	list := &coordinationv1.LeaseList{}
	f.Must(f.api.List(f.Context(), list, client.InNamespace(f.namespace)))
	all := map[string]*coordinationv1.Lease{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}

func (f *fixture) lease(name string) *coordinationv1.Lease {
	f.Helper()
	lease := f.leases()[name]
	if lease == nil {
		f.Fatalf("there is no Lease %s", name)
	}
	return lease
}

// change changes a Lease by hand.
func (f *fixture) change(name string, how func(*coordinationv1.Lease)) {
	f.Helper()
	lease := f.lease(name)
	how(lease)
	f.Must(f.api.Update(f.Context(), lease))
}

// serving is what a replica sees of which certificates.
func (f *fixture) serving(r *Replica) map[string]string {
	f.Helper()
	all, err := r.Serving(f.Context())
	f.Must(err)
	return all
}

func (f *fixture) sees(r, other *Replica) bool {
	f.Helper()
	_, is := f.serving(r)[other.identity]
	return is
}

// trouble is between a replica and the API server.
type trouble struct {
	next http.RoundTripper
	// how is what becomes of a request.
	how   atomic.Int32
	tried atomic.Int64
}

const (
	fine int32 = iota
	away
	hangs
	replyLost
)

var errTrouble = errors.New("the API server is away")

// troubled gives a configuration whose requests meet it.
func (f *fixture) troubled() (*rest.Config, *trouble) {
	tr := &trouble{}
	config := rest.CopyConfig(f.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		tr.next = next
		return tr
	})
	return config, tr
}

// WrappedRoundTripper is for client-go, which cancels requests.
func (tr *trouble) WrappedRoundTripper() http.RoundTripper { return tr.next }

func (tr *trouble) RoundTrip(request *http.Request) (*http.Response, error) {
	defer tr.tried.Add(1)
	switch tr.how.Load() {
	case away:
		return nil, errTrouble
	case hangs:
		<-request.Context().Done()
		return nil, errTrouble
	case replyLost:
		response, err := tr.next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return nil, errTrouble
	}
	return tr.next.RoundTrip(request)
}
