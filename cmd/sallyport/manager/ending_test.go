package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"sallyport.dev/sallyport/test/support/env/install"
)

// client gives a client with connections of its own, as an API server has. It trusts whom the API server trusts when it connects.
func (s *site) client(address string) *http.Client {
	transport := &http.Transport{}
	transport.DialTLSContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		trusted, err := s.authorities()
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(trusted)
		config := &tls.Config{RootCAs: roots, ServerName: s.service(), NextProtos: []string{"http/1.1"}}
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: aimed{transport, address}}
}

// aimed sends every request to one address.
type aimed struct {
	*http.Transport
	address string
}

func (a aimed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "https", a.address
	return a.Transport.RoundTrip(r)
}

// echo gives the answer of a replica, which says its name.
func echo(c *http.Client, body string) (string, error) {
	response, err := c.Post(echoPath, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return string(answer), err
}

// hammer is clients that send one request after the other.
type hammer struct {
	*site
	stopped atomic.Bool
	working sync.WaitGroup
	failed  atomic.Pointer[error]
	total   atomic.Int64

	mu   sync.Mutex
	last []string // who answered each client last
}

func (s *site) hammer(clients ...*http.Client) *hammer {
	s.Helper()
	l := &hammer{site: s, last: make([]string, len(clients))}
	for i, c := range clients {
		l.working.Go(func() {
			for n := 0; !l.stopped.Load(); n++ {
				want := fmt.Sprintf("%d of %d", n, i)
				answer, err := echo(c, want)
				who, what, _ := strings.Cut(answer, " ")
				if err == nil && what != want {
					err = fmt.Errorf("got %q to %q", answer, want)
				}
				if err != nil {
					l.failed.CompareAndSwap(nil, &err)
				}
				l.total.Add(1)
				l.mu.Lock()
				l.last[i] = who
				l.mu.Unlock()
			}
		})
	}
	s.Cleanup(l.stop)
	return l
}

func (l *hammer) stop() {
	l.stopped.Store(true)
	l.working.Wait()
}

// answeredBy counts the clients whose last answer was from there.
func (l *hammer) answeredBy(name string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, who := range l.last {
		if who == name {
			n++
		}
	}
	return n
}

// more waits for so many requests.
func (l *hammer) more(n int64) {
	l.Helper()
	from := l.total.Load()
	l.Eventually("there were more requests", func() bool { return l.total.Load() > from+n })
}

// Of two replicas one ends, as in a rollout, and no request fails: neither over the connections that API servers keep open, nor
// over new ones, nor one that takes long.
func TestNoRequestFailsWhenAReplicaEnds(t *testing.T) {
	s := newSite(t)
	// Longer than the balancer needs to notice, on a machine that is busy.
	a, b := s.start("a", "--shutdown-delay", "3s"), s.start("b", "--shutdown-delay", "3s")
	s.Eventually("both are ready", func() bool { return a.says("readyz") && b.says("readyz") })
	balancer, err := install.NewBalancer("127.0.0.1:0", a.backend(), b.backend())
	s.Must(err)
	t.Cleanup(func() { _ = balancer.Close() })
	probe := s.client(balancer.Address())
	s.Eventually("the balancer knows that a replica is ready", func() bool { _, err := echo(probe, "x"); return err == nil })
	held := s.hold(a)

	var clients []*http.Client
	for range 8 {
		clients = append(clients, s.client(balancer.Address()))
	}
	load := s.hammer(clients...)
	load.more(1000)
	if load.answeredBy("a") == 0 || load.answeredBy("b") == 0 {
		t.Fatalf("%d clients have connections to a, %d to b", load.answeredBy("a"), load.answeredBy("b"))
	}
	before := balancer.Taken(a.webhooks) + balancer.Taken(b.webhooks)
	load.more(1000)
	if after := balancer.Taken(a.webhooks) + balancer.Taken(b.webhooks); after > before {
		t.Errorf("connections are not kept: %d, then %d", before, after)
	}

	a.signal()
	s.Eventually("it is not ready any more", func() bool { return !a.says("readyz") })
	s.Eventually("its clients go to the other one", func() bool { return load.answeredBy("a") == 0 })
	if refused(&Options{WebhookHost: host(a.webhooks), WebhookPort: port(a.webhooks)}) {
		t.Error("it takes no more connections already")
	}
	if err := a.ends(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	load.more(1000)
	load.stop()
	if err := load.failed.Load(); err != nil {
		t.Errorf("a request failed: %v", *err)
	}
	if answer, err := held(); err != nil || answer != "held" {
		t.Errorf("the request that was being answered: %q, %v", answer, err)
	}
	if !a.isSignedOff() || b.isSignedOff() {
		t.Errorf("signed off: a %v, b %v", a.isSignedOff(), b.isSignedOff())
	}
	s.Eventually("the other one leads", func() bool { return strings.HasPrefix(s.leader(), "b_") })
}

// hold sends a request that is answered only at the end, and gives the answer to it.
func (s *site) hold(to *member) func() (string, error) {
	s.Helper()
	response, err := s.client(to.webhooks).Post(holdPath, "application/json", strings.NewReader("x"))
	s.Must(err)
	return func() (string, error) {
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		return string(answer), err
	}
}

// leader is who has the lease, if anybody.
func (s *site) leader() string {
	s.Helper()
	lease := &coordinationv1.Lease{}
	s.Must(client.IgnoreNotFound(s.api.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: leaseName}, lease)))
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

func host(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

func port(address string) (n int) {
	_, port, _ := net.SplitHostPort(address)
	_, _ = fmt.Sscan(port, &n)
	return n
}

// A second signal does not wait for anything.
func TestTheSecondSignalEndsAtOnce(t *testing.T) {
	s := newSite(t)
	a := s.start("a", "--shutdown-delay", "24h")
	s.Eventually("it is ready", func() bool { return a.says("readyz") })
	a.signal()
	s.Eventually("it is not ready any more", func() bool { return !a.says("readyz") })
	if !a.says("healthz") {
		t.Error("it is still alive")
	}
	if _, err := echo(s.client(a.webhooks), "x"); err != nil {
		t.Errorf("it still serves: %v", err)
	}
	a.signal()
	var exit *exec.ExitError
	if err := a.ends(); !errors.As(err, &exit) || exit.Success() {
		t.Errorf("it ended with %v", err)
	}
	if a.isSignedOff() {
		t.Error("it has no time to sign off; its Lease runs out")
	}
}

// stubServer is a webhook server that serves until its context ends.
type stubServer struct {
	webhook.Server
	serving chan context.Context
	ended   atomic.Bool
}

func (s *stubServer) Start(ctx context.Context) error {
	s.serving <- ctx
	<-ctx.Done()
	s.ended.Store(true)
	return nil
}

// A manager that has lost its lease ends the context of the webhook server at once. The server goes on for the delay, unready, and the
// process does not end before.
func TestWebhooksAreServedAfterTheLeaseIsLost(t *testing.T) {
	stub, e := &stubServer{serving: make(chan context.Context, 1)}, newEnding(quiet)
	lost := errors.New("leader election lost")
	err := e.run(t.Context(), func(ctx context.Context) error {
		running, end := context.WithCancel(ctx)
		go func() { _ = endingServer{stub, e}.Start(running) }()
		serving := <-stub.serving
		end()
		if serving.Err() != nil {
			t.Error("the server ends with the lease")
		}
		return lost
	})
	if !errors.Is(err, lost) || !stub.ended.Load() || e.ready(nil) == nil {
		t.Errorf("run ends with %v, the server has ended: %v, readiness: %v", err, stub.ended.Load(), e.ready(nil))
	}
}
