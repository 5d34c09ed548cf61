package certs

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) { install.Main(m) }

// clock is one for a whole fixture.
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

// board is where replicas report.
type board struct {
	mu  sync.Mutex
	all map[string]string
	err error
	// unreported is the error of reports.
	unreported error
}

// reader reads what replicas report. Its own reports do not count.
type reader struct{ *board }

func (reader) Report(context.Context, string) error { return nil }

// place is that of one replica.
type place struct {
	*board
	name string
}

func (p place) Report(_ context.Context, hash string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unreported == nil {
		p.all[p.name] = hash
	}
	return p.unreported
}

func (b *board) Serving(context.Context) (map[string]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.all), b.err
}

// toldEvents are the reasons of events.
type toldEvents struct {
	mu  sync.Mutex
	all []string
}

func (e *toldEvents) Eventf(_, _ kruntime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, reason+": "+fmt.Sprintf(note, args...))
}

func (e *toldEvents) count(reason string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.all {
		if strings.HasPrefix(one, reason+": ") {
			n++
		}
	}
	return n
}

// replica serves on a port of its own.
type replica struct {
	*Certificates
	name, address string
}

func (r *replica) ready() error { return r.Ready(nil) }

func (r *replica) hash() string { return r.state.Load().served.hash() }

// fixture is a namespace, webhook configurations that no request meets, replicas, and a leader that is driven by hand.
type fixture struct {
	step.T
	clock
	board
	toldEvents
	api      client.WithWatch
	options  Options
	replicas []*replica

	issuer      *authority // cert-manager's
	authorities int        // that were made

	mu     sync.Mutex
	writes []string
	// crash is asked before and after each write, by its number from 1; an error is as if the process had died.
	crash func(n int, after bool) error
}

func newFixture(t *testing.T, replicas ...string) *fixture {
	t.Helper()
	api, namespace := install.Shared(t, "certs-")
	f := &fixture{T: step.T{T: t}, api: api, clock: clock{now: time.Now().Truncate(time.Second)}, board: board{all: map[string]string{}}}
	service := "sallyport-webhook." + namespace + ".svc"
	f.options = Options{
		Mode: SelfSigned, Secret: types.NamespacedName{Namespace: namespace, Name: "sallyport-certificate"}, Issued: "sallyport-webhook-tls",
		DNSNames:       []string{service, service + ".cluster.local"},
		Configurations: []string{namespace, "not-there"},
		OwnValidity:    30 * day24, Now: f.Now,
	}
	f.configure(namespace)
	for _, name := range replicas {
		f.serve(name)
	}
	return f
}

// configure makes webhook configurations, with two webhooks in one of them.
func (f *fixture) configure(name string) {
	f.Helper()
	endpoint := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: name, Name: "w"}}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"certs.test"}, APIVersions: []string{"v1"}, Resources: []string{"nothings"}},
	}}
	none := ptr.To(admissionregistrationv1.SideEffectClassNone)
	validating := func(name string) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{Name: name, ClientConfig: endpoint, Rules: rules, SideEffects: none, AdmissionReviewVersions: []string{"v1"}}
	}
	meta := metav1.ObjectMeta{Name: name}
	for _, c := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "m.certs.test", ClientConfig: endpoint, Rules: rules, SideEffects: none, AdmissionReviewVersions: []string{"v1"},
		}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{
			validating("a.certs.test"), validating("b.certs.test"),
		}},
	} {
		f.Must(f.api.Create(f.Context(), c))
		f.Cleanup(func() { f.ignore(f.api.Delete(context.Background(), c)) })
	}
}

func (f *fixture) ignore(error) {}

// prepare returns the certificate of another process.
func (f *fixture) prepare() *Certificates {
	f.Helper()
	c, err := New(&f.options)
	f.Must(err)
	return c
}

// serve starts a replica that answers TLS handshakes.
func (f *fixture) serve(name string) *replica {
	f.Helper()
	r := &replica{name: name, Certificates: f.prepare()}
	r.live, r.replicas = f.api, place{&f.board, name}
	r.address = listen(f.T.T, r.TLS)
	f.board.mu.Lock()
	f.board.all[name] = ""
	f.board.mu.Unlock()
	f.replicas = append(f.replicas, r)
	return r
}

func listen(t *testing.T, configure func(*tls.Config)) string {
	t.Helper()
	config := &tls.Config{}
	configure(config)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, c) // which makes the handshake
				_ = c.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

var errCrash = errors.New("the process died")

// leader is a process that leads, with nothing in its memory.
func (f *fixture) leader() *Certificates {
	note := func(what string, o client.Object, write func() error) error {
		f.mu.Lock()
		f.writes = append(f.writes, fmt.Sprintf("%s %T", what, o))
		n, crash := len(f.writes), f.crash
		f.mu.Unlock()
		if crash == nil {
			return write()
		}
		if err := crash(n, false); err != nil {
			return err
		}
		if err := write(); err != nil {
			return err
		}
		return crash(n, true)
	}
	writer := interceptor.NewClient(f.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return note("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return note("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return note("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
	})
	l := f.prepare()
	l.live, l.writer, l.replicas, l.events = f.api, writer, reader{&f.board}, &f.toldEvents
	return l
}

func (f *fixture) written() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.writes)
}

// lead lets a leader look once.
func (f *fixture) lead(l *Certificates) {
	f.Helper()
	_, err := l.look(f.Context(), true)
	f.Must(err)
}

// take lets replicas look once.
func (f *fixture) take(replicas ...*replica) {
	f.Helper()
	for _, r := range replicas {
		_, err := r.look(f.Context(), false)
		f.Must(err)
	}
}

// settle goes on until there is nothing left to do. It looks at every handshake in between when something has changed, and in the end.
func (f *fixture) settle(l *Certificates) {
	f.Helper()
	quiet := 0
	for round := range 60 {
		before, served := len(f.written()), f.served()
		f.lead(l)
		if round == 0 || len(f.written()) > before {
			f.handshakes()
		}
		f.take(f.replicas...)
		if !slices.Equal(f.served(), served) {
			f.handshakes()
		}
		f.add(10 * time.Second)
		if quiet++; len(f.written()) > before {
			quiet = 0
		}
		if quiet == 8 { // longer than API servers are given to settle, twice
			f.handshakes()
			return
		}
	}
	f.Fatalf("it never comes to rest: %v", f.written())
}

// served is which certificate each replica serves.
func (f *fixture) served() (hashes []string) {
	for _, r := range f.replicas {
		hashes = append(hashes, r.hash())
	}
	return hashes
}

// running is a fixture that is installed and at rest.
func running(t *testing.T, replicas ...string) (*fixture, *Certificates) {
	t.Helper()
	f := newFixture(t, replicas...)
	l := f.leader()
	f.lead(l)
	f.take(f.replicas...)
	f.settle(l)
	return f, l
}

// state is the Secret as it is, with the authorities that are trusted beside those in it.
type state struct {
	*offer
	trusted []*x509.Certificate
}

func (f *fixture) state() state {
	f.Helper()
	secret := f.secret()
	f.Must(f.api.Get(f.Context(), client.ObjectKeyFromObject(secret), secret))
	s := state{offer: f.options.offer(f.options.sources()[0], secret, nil, f.Now())}
	configurations, err := f.live(f.Context())
	f.Must(err)
	for _, authorities := range bundles(configurations, f.Now()) {
		for _, a := range authorities {
			if !slices.ContainsFunc(append(s.authorities(), s.trusted...), a.Equal) {
				s.trusted = append(s.trusted, a)
			}
		}
	}
	return s
}

// secret is the Secret with nothing but its name.
func (f *fixture) secret() *corev1.Secret { return f.options.sources()[0].empty() }

// authorities are those that the Secret has.
func (s state) authorities() []*x509.Certificate {
	if s.certificate == nil {
		return nil
	}
	return slices.Clone(s.roots)
}

// bundle is what the webhook configurations have when all is at rest.
func (s state) bundle() []byte { return encoded(s.roots...) }

// live reads the webhook configurations that are there.
func (f *fixture) live(ctx context.Context) (all []client.Object, _ error) {
	for _, c := range f.options.configurations() {
		switch err := f.api.Get(ctx, client.ObjectKeyFromObject(c), c); {
		case err == nil:
			all = append(all, c)
		case client.IgnoreNotFound(err) != nil:
			return nil, err
		}
	}
	return all, nil
}

// handshakes makes one with each replica by the bundle of each webhook, as it is now.
func (f *fixture) handshakes() {
	f.Helper()
	f.Must(f.tryHandshakes(f.Context()))
}

func (f *fixture) tryHandshakes(ctx context.Context) error {
	configurations, err := f.live(ctx)
	if err != nil {
		return err
	}
	for bundle := range bundles(configurations, f.Now()) {
		for _, r := range f.replicas {
			if err := f.handshake(r, []byte(bundle)); err != nil {
				return fmt.Errorf("handshake with %s: %w", r.name, err)
			}
		}
	}
	return nil
}

// handshake is one as API servers make it.
func (f *fixture) handshake(r *replica, bundle []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	c, err := tls.Dial("tcp", r.address, &tls.Config{RootCAs: roots, ServerName: f.options.DNSNames[0], Time: f.Now})
	if err != nil {
		return err
	}
	return c.Close()
}

// change changes the Secret by hand.
func (f *fixture) change(how func(map[string][]byte)) {
	f.Helper()
	secret := f.secret()
	f.Must(f.api.Get(f.Context(), f.options.Secret, secret))
	how(secret.Data)
	f.Must(f.api.Update(f.Context(), secret))
}

// authority is a certificate with its key, that of a CA or one that a CA has signed.
type authority struct {
	*x509.Certificate
	signer   crypto.Signer
	crt, key []byte // PEM, as in a Secret
}

// sign creates a certificate that another client than Sallyport has: by an authority, or by itself.
func (f *fixture) sign(template *x509.Certificate, by *authority) *authority {
	f.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	f.Must(err)
	if by == nil {
		by = &authority{Certificate: template, signer: signer}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Certificate, signer.Public(), by.signer)
	f.Must(err)
	made, err := x509.ParseCertificate(der)
	f.Must(err)
	key, err := keyutil.MarshalPrivateKeyToPEM(signer)
	f.Must(err)
	return &authority{made, signer, encoded(made), key}
}

// newAuthority creates a CA.
func (f *fixture) newAuthority() *authority {
	f.Helper()
	f.authorities++
	return f.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: fmt.Sprintf("another CA %d", f.authorities)}, NotBefore: f.Now().Add(-backdate), NotAfter: f.Now().Add(3650 * day24),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}, nil)
}

// leaf creates a serving certificate of a CA.
func (f *fixture) leaf(by *authority, from, until time.Time, names ...string) *authority {
	f.Helper()
	return f.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "webhook"}, DNSNames: names, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, by)
}
