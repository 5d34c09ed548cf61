package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestFirstInstallation(t *testing.T) {
	f := newFixture(t)
	f.options.Metrics = prometheus.NewRegistry()
	a := f.serve("a")
	f.options.Metrics = nil
	f.serve("b")
	f.take(a)
	config := &tls.Config{}
	a.TLS(config)
	if _, err := config.GetCertificate(nil); err == nil || !strings.Contains(err.Error(), "no certificate yet: Secret "+f.options.Secret.String()) {
		t.Errorf("before there is a certificate a handshake gets %v", err)
	}
	if a.ready() == nil || f.handshake(a, nil) == nil {
		t.Error("a replica without a certificate is ready")
	}
	f.lead(f.leader())
	f.take(f.replicas...)
	f.handshakes()
	f.Must(a.ready())
	if got := f.written(); len(got) != 3 {
		t.Errorf("it takes %v, not one write for the Secret and for each configuration", got)
	}
	secret := f.secret()
	f.Must(f.api.Get(t.Context(), f.options.Secret, secret))
	if secret.Type != corev1.SecretTypeTLS {
		t.Errorf("the Secret is of type %s", secret.Type)
	}
	c := f.state()
	if got, want := c.Leaf.NotAfter, f.Now().Add(30*day24); !got.Equal(want) {
		t.Errorf("the certificate is valid until %s, not %s", got, want)
	}
	if !c.Leaf.NotBefore.Equal(f.Now().Add(-time.Hour)) {
		t.Error("clocks that are behind would not take it")
	}
	if len(secret.Data) != 3 {
		t.Errorf("the Secret has %v", slices.Sorted(maps.Keys(secret.Data)))
	}
	if leaf := c.Leaf; !leaf.IsCA || leaf.KeyUsage&x509.KeyUsageCertSign == 0 || leaf.MaxPathLen != 0 || !leaf.MaxPathLenZero {
		t.Error("earlier releases, which trust only CAs, would remove the certificate from the caBundle after a rollback")
	}
	for which, want := range map[string]time.Time{"ca": c.Leaf.NotAfter, "serving": c.Leaf.NotAfter} {
		if got := testutil.ToFloat64(a.expiry.WithLabelValues(which)); got != float64(want.Unix()) {
			t.Errorf("metric of %s is %f", which, got)
		}
	}
	if f.count(reasonBroken) != 0 || f.count(reasonIssued) != 1 || f.count(reasonBundleWritten) != 2 {
		t.Errorf("people were told %v", f.toldEvents.all)
	}
}

func TestSteadyStateWritesNothing(t *testing.T) {
	f, l := running(t, "a", "b")
	f.writes = nil
	for i := range 40 {
		if i%10 == 0 {
			l = f.leader()
		}
		wait, err := l.look(t.Context(), true)
		f.Must(err)
		if wait != resync {
			t.Fatalf("it looks again after %s", wait)
		}
		f.take(f.replicas...)
		f.add(12 * time.Hour)
	}
	if got := f.written(); len(got) != 0 {
		t.Errorf("writes: %v", got)
	}
}

func TestBundleThatSomebodyEditedIsRepaired(t *testing.T) {
	f, l := running(t, "a")
	foreign := f.newAuthority()
	want := f.state()
	for name, edited := range map[string][]byte{
		"removed": nil, "garbled": []byte("garbage"), "another authority": foreign.crt,
		"one more authority": append(want.bundle(), foreign.crt...),
	} {
		configurations, err := f.live(t.Context())
		f.Must(err)
		for _, c := range configurations {
			before := c.DeepCopyObject().(client.Object)
			c.SetAnnotations(map[string]string{"theirs": name})
			endpoints(c)[len(endpoints(c))-1].CABundle = edited
			f.Must(f.api.Patch(t.Context(), c, client.MergeFrom(before)))
		}
		f.take(f.replicas...)
		if trouble := f.replicas[0].ready(); (trouble == nil) != (name == "one more authority") {
			t.Errorf("%s: the replica's readiness is: %v", name, trouble)
		}
		f.writes = nil
		f.lead(l)
		f.take(f.replicas...)
		f.handshakes()
		f.Must(f.replicas[0].ready())
		if len(f.written()) != 2 {
			t.Errorf("%s: writes %v", name, f.written())
		}
		configurations, err = f.live(t.Context())
		f.Must(err)
		for _, c := range configurations {
			if c.GetAnnotations()["theirs"] != name {
				t.Errorf("%s: what others wrote into %T is gone", name, c)
			}
			for _, e := range endpoints(c) {
				if string(e.CABundle) != string(want.bundle()) || e.Service == nil {
					t.Errorf("%s: %T has %v", name, c, e)
				}
			}
		}
	}
}

// A client that changes the caBundle each time is told of once. Until the caBundle is written again, no request is admitted.
func TestBundleThatIsContended(t *testing.T) {
	f, l := running(t, "a")
	told := func() (n int) {
		for _, text := range f.toldEvents.all {
			if strings.HasPrefix(text, reasonTwoWriters+": Another client changes the caBundle each time") {
				n++
			}
		}
		return n
	}
	for i := range 6 {
		configurations, err := f.live(t.Context())
		f.Must(err)
		before := configurations[0].DeepCopyObject().(client.Object)
		endpoints(configurations[0])[0].CABundle = nil
		f.Must(f.api.Patch(t.Context(), configurations[0], client.MergeFrom(before)))
		f.writes = nil
		f.lead(l)
		if got := told(); len(f.written()) != 1 || got > 1 || (got == 1) != (i >= 2) {
			t.Errorf("change %d: it writes %v and tells %d times", i, f.written(), got)
		}
		f.add(time.Second)
	}
}

// A replica that serves goes on, whatever becomes of the Secret, and is trusted until it serves what comes instead.
func TestSecretThatIsBroken(t *testing.T) {
	other := newFixture(t).newAuthority()
	put := func(key, value string) func(map[string][]byte) {
		return func(data map[string][]byte) { data[key] = []byte(value) }
	}
	for name, how := range map[string]func(map[string][]byte){
		"certificate":         put(certKey, "garbage"),
		"key":                 put(privateKeyKey, ""),
		"authority":           put(caKey, "garbage"),
		"no authority":        func(data map[string][]byte) { delete(data, caKey) },
		"another authority":   func(data map[string][]byte) { data[caKey] = other.crt },
		"key of another":      func(data map[string][]byte) { data[privateKeyKey] = other.key },
		"certificate and key": func(data map[string][]byte) { data[certKey], data[privateKeyKey] = other.crt, other.key },
		"nothing is in it":    func(data map[string][]byte) { clear(data); data[certKey], data[privateKeyKey] = nil, nil },
		"deleted":             nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, l := running(t, "a", "b")
			served := f.replicas[0].hash()
			if how == nil {
				f.Must(f.api.Delete(t.Context(), f.secret()))
			} else {
				f.change(how)
			}
			f.take(f.replicas...)
			f.handshakes()
			f.Must(f.replicas[0].ready())
			f.settle(l)
			c := f.state()
			if c.wrong != nil || len(c.trusted) != 0 {
				t.Errorf("the Secret has faults %v and %d older authorities", c.wrong, len(c.trusted))
			}
			for _, r := range f.replicas {
				if f.Must(r.ready()); r.hash() != c.hash() || r.hash() == served {
					t.Errorf("%s does not serve what is in the Secret", r.name)
				}
			}
			if told := f.count(reasonBroken); (told > 0) == (how == nil || name == "nothing is in it") {
				t.Errorf("people were told %d times that something is broken: %v", told, f.toldEvents.all)
			}
		})
	}
}

// A renewal keeps the keys of other clients, but not the key of a CA, which earlier releases stored.
func TestRenewalKeepsOtherKeys(t *testing.T) {
	f, l := running(t, "a")
	f.change(func(data map[string][]byte) { data["note"], data["ca.key"] = []byte("theirs"), f.newAuthority().key })
	first := f.replicas[0].hash()
	f.add(renewal)
	f.settle(l)
	secret := f.secret()
	f.Must(f.api.Get(t.Context(), f.options.Secret, secret))
	want := []string{caKey, "note", certKey, privateKeyKey}
	if got := slices.Sorted(maps.Keys(secret.Data)); !slices.Equal(got, want) || string(secret.Data["note"]) != "theirs" || f.replicas[0].hash() == first {
		t.Errorf("the renewed Secret has %v, not %v", got, want)
	}
}

// Somebody puts back a Secret of long ago, which is whole but of another authority.
func TestSecretFromABackup(t *testing.T) {
	f, l := running(t, "a", "b")
	backup := f.secret()
	f.Must(f.api.Get(t.Context(), f.options.Secret, backup))
	f.Must(f.api.Delete(t.Context(), f.secret()))
	f.settle(l)
	f.change(func(data map[string][]byte) {
		for k, v := range backup.Data {
			data[k] = v
		}
	})
	f.take(f.replicas...)
	f.handshakes()
	f.settle(l)
	if c := f.state(); f.replicas[0].hash() != c.hash() || len(c.trusted) != 0 {
		t.Error("it did not come to rest")
	}
}

func TestClocksAndNames(t *testing.T) {
	f, l := running(t, "a")
	t.Run("made by a clock far ahead", func(t *testing.T) {
		f.add(-365 * day24)
		f.lead(l)
		f.take(f.replicas...)
		f.handshakes()
	})
	t.Run("all was off until the certificate expired", func(t *testing.T) {
		f.settle(l)
		f.add(40 * day24)
		if f.replicas[0].ready() == nil {
			t.Error("a replica with a certificate that expired is ready")
		}
		f.lead(f.leader())
		f.take(f.replicas...)
		f.handshakes()
		f.Must(f.replicas[0].ready())
	})
	t.Run("another name is wanted", func(t *testing.T) {
		f.settle(l)
		f.options.DNSNames = append([]string{"other.example.svc"}, f.options.DNSNames...)
		f.lead(l) // what is served is no use for that name, but for the others
		f.add(time.Minute)
		f.lead(l)
		f.take(f.replicas...)
		f.handshakes()
	})
	t.Run("a configuration that comes later", func(t *testing.T) {
		f.configure(f.options.Secret.Namespace + "-later")
		f.options.Configurations = append(f.options.Configurations, f.options.Secret.Namespace+"-later")
		f.lead(l)
		f.handshakes()
	})
}

// What cannot be known is not taken for nothing: without reports nothing is dropped, and what failed is tried again.
func TestReports(t *testing.T) {
	f, l := running(t, "a", "b")
	f.add(renewal)
	f.err = errors.New("no Lease")
	if _, err := l.look(t.Context(), true); err == nil || f.count(reasonIssued) != 1 {
		t.Error("a leader that cannot ask goes on")
	}
	if _, err := f.replicas[0].look(t.Context(), false); err == nil {
		t.Error("a replica that cannot ask goes on")
	}
	f.err = nil
	f.lead(l)
	f.take(f.replicas...)
	f.add(f.options.Settle) // to where both replicas are to report
	f.unreported = errors.New("no Lease")
	for _, r := range f.replicas {
		if _, err := r.look(t.Context(), false); err == nil {
			t.Error("a report that failed is forgotten")
		}
	}
	f.handshakes()
	f.unreported = nil
	reported := func(all map[string]string) int {
		f.board.all = all
		for range 8 {
			f.lead(f.leader())
			f.lead(l)
			f.add(5 * time.Second)
		}
		f.handshakes()
		return len(f.state().trusted)
	}
	served := f.replicas[0].hash()
	for _, all := range []map[string]string{{}, {"a": served, "b": ""}, {"a": served, "b": "another"}} {
		if reported(all) != 1 {
			t.Errorf("with reports %v the old authority is dropped", all)
		}
	}
	f.take(f.replicas...)
	if reported(map[string]string{"a": served}) != 0 { // b is not live any more
		t.Error("the old authority is kept for nobody")
	}
}

// An immutable Secret keeps the leader from a renewal, but from nothing else, and people are told what to do.
func TestImmutableSecret(t *testing.T) {
	f, l := running(t, "a")
	secret := f.secret()
	f.Must(f.api.Get(t.Context(), f.options.Secret, secret))
	secret.Immutable = ptr.To(true)
	f.Must(f.api.Update(t.Context(), secret))
	f.add(25 * day24) // it is due
	served := f.replicas[0].hash()
	configurations, err := f.live(t.Context())
	f.Must(err)
	before := configurations[0].DeepCopyObject().(client.Object)
	endpoints(configurations[0])[0].CABundle = nil
	f.Must(f.api.Patch(t.Context(), configurations[0], client.MergeFrom(before)))
	for range 3 {
		f.lead(l)
		f.take(f.replicas...)
		f.handshakes()
		f.Must(f.replicas[0].ready())
		f.add(patience)
	}
	want := "kubectl -n " + f.options.Secret.Namespace + " delete secret " + f.options.Secret.Name
	if told := strings.Join(f.toldEvents.all, "\n"); f.count(reasonUnusable) != 1 || !strings.Contains(told, "immutable") || !strings.Contains(told, want) {
		t.Errorf("people are told %s", told)
	}
	f.add(6 * day24) // it has expired
	f.replicas = nil
	b := f.serve("b")
	l = f.leader()
	f.lead(l)
	f.take(b)
	if err := l.Ready(nil); b.ready() == nil || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("readiness is %v", err)
	}
	f.Must(f.api.Delete(t.Context(), secret))
	f.lead(l)
	f.take(b)
	f.settle(l)
	f.Must(b.ready())
	if b.hash() == served {
		t.Error("the certificate is not renewed")
	}
}

func TestAPIServerIsAway(t *testing.T) {
	f, l := running(t, "a")
	f.writes = nil
	for _, onlySecrets := range []bool{false, true} {
		away := interceptor.NewClient(f.api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, is := o.(*corev1.Secret); onlySecrets && !is {
					return c.Get(ctx, key, o, opts...)
				}
				return errors.New("connection refused")
			},
		})
		l.live, f.replicas[0].live = away, away
		for name, c := range map[string]*Certificates{"the leader": l, "the replica": f.replicas[0].Certificates} {
			if _, err := c.look(t.Context(), c == l); err == nil {
				t.Errorf("%s takes no answer for one", name)
			}
		}
	}
	f.handshakes()
	f.Must(f.replicas[0].ready())
	if len(f.written()) != 0 {
		t.Errorf("writes: %v", f.written())
	}
}

func TestOptions(t *testing.T) {
	good := Options{Secret: types.NamespacedName{Namespace: "n", Name: "s"}, Issued: "i", DNSNames: []string{"w.n.svc"}}
	if _, err := New(&good); err != nil {
		t.Error(err)
	}
	var all []error
	for _, spoil := range []func(*Options){
		func(o *Options) { o.Secret.Name = "" }, func(o *Options) { o.DNSNames = nil },
		func(o *Options) { o.IssuedValidity = 2 * year }, func(o *Options) { o.OwnValidity = -1 }, func(o *Options) { o.Settle = -1 },
		func(o *Options) { o.Mode = "other" }, func(o *Options) { o.Mode = Existing }, func(o *Options) { o.Issued = "" },
		func(o *Options) { o.Existing = "s" }, func(o *Options) { o.Authorities = []byte("x") },
	} {
		o := good
		spoil(&o)
		_, err := New(&o)
		all = append(all, err)
	}
	if slices.Contains(all, nil) {
		t.Errorf("bad options are taken: %v", all)
	}
}
