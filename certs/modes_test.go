package certs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

// in is a fixture whose replicas and leaders run in another mode from now on. Each of them starts anew.
func (f *fixture) in(mode Mode, replicas ...string) *Certificates {
	f.Helper()
	f.options.Mode = mode
	return f.anew(replicas...)
}

// anew replaces the replicas, one after the other as a rollout does, and the leader at last.
func (f *fixture) anew(replicas ...string) *Certificates {
	f.Helper()
	for _, name := range replicas {
		r := f.serve(name)
		f.take(r)
		if len(f.replicas) > len(replicas) {
			f.Must(r.ready()) // or the rollout would not go on
			f.board.mu.Lock()
			delete(f.board.all, f.replicas[0].name)
			f.board.mu.Unlock()
			f.replicas = f.replicas[1:]
		}
	}
	return f.leader()
}

// put has somebody else write the Secret of a mode, with a certificate and authority.
func (f *fixture) put(name string, ca, leaf *authority) {
	f.Helper()
	f.write(name, map[string][]byte{certKey: leaf.crt, privateKeyKey: leaf.key, caKey: ca.crt})
}

func (f *fixture) write(name string, data map[string][]byte) {
	f.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.options.Secret.Namespace, Name: name}, Type: corev1.SecretTypeTLS}
	f.Must(client.IgnoreNotFound(f.api.Get(f.Context(), client.ObjectKeyFromObject(secret), secret)))
	for _, key := range []string{certKey, privateKeyKey} {
		if data[key] == nil {
			data[key] = []byte{}
		}
	}
	secret.Data = data
	if secret.ResourceVersion == "" {
		f.Must(f.api.Create(f.Context(), secret))
		return
	}
	f.Must(f.api.Update(f.Context(), secret))
}

// theirs is a certificate of another authority than Sallyport's, which is not valid before now, as cert-manager's are not.
func (f *fixture) theirs(by *authority, validity time.Duration) (ca, leaf *authority) {
	f.Helper()
	if by == nil {
		by = f.newAuthority()
	}
	return by, f.leaf(by, f.Now(), f.Now().Add(validity), f.options.DNSNames...)
}

// A year of each mode, with a look every day or oftener (with -short the first third, with fewer looks): whoever maintains the Secret
// renews it in time, no replica is ever not ready, and no handshake fails.
func TestAYearOfEachMode(t *testing.T) {
	installCertManager(t)
	days, look := time.Duration(365), 24*time.Hour
	modes := []Mode{Auto, CertManager, SelfSigned, Existing}
	if testing.Short() {
		days, look = 120, 48*time.Hour
		modes = []Mode{Auto, Existing} // Auto begins as SelfSigned and goes on as CertManager
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "a", "b")
			f.options.OwnValidity = 60 * day24
			f.options.Existing = "theirs"
			ca, leaf := f.theirs(nil, 90*day24)
			f.put("theirs", ca, leaf)
			f.replicas, f.board.all = nil, map[string]string{}
			l := f.in(mode, "a", "b")
			f.lead(l)
			f.issue()
			f.take(f.replicas...)
			f.settle(l)
			hashes := map[string]bool{}
			for end := f.Now().Add(days * day24); f.Now().Before(end); {
				if !f.Now().Before(part(leaf.Certificate, renewAt)) {
					if len(hashes)%2 == 0 {
						ca = nil // and another authority
					}
					ca, leaf = f.theirs(ca, 90*day24)
					f.put("theirs", ca, leaf)
				}
				f.issue()
				before := f.replicas[0].hash()
				f.lead(l)
				f.take(f.replicas...)
				for _, r := range f.replicas {
					f.Must(r.ready())
				}
				if hash := f.replicas[0].hash(); hash != before {
					f.handshakes()
					hashes[hash] = true
				}
				if now := f.state(); now.hash() == f.replicas[0].hash() && len(now.trusted) == 0 {
					f.add(look)
				} else {
					f.add(20 * time.Second)
				}
			}
			f.settle(l)
			if n := len(hashes); n < int(days)/90 {
				t.Errorf("%d certificates in %d days", n, days)
			}
			if mode == SelfSigned || mode == Auto {
				return
			}
			if err := f.api.Get(t.Context(), f.options.Secret, &corev1.Secret{}); !apierrors.IsNotFound(err) {
				t.Errorf("Sallyport has written its own Secret: %v", err)
			}
		})
	}
}

// What is wrong with a Secret that somebody else maintains is told with what to do; what is trusted is served meanwhile.
func TestExistingSecret(t *testing.T) {
	f := newFixture(t, "a", "b")
	f.options.Existing = "theirs"
	f.replicas, f.board.all = nil, map[string]string{}
	l := f.in(Existing, "a", "b")
	says := func(what string, want string, ready bool) {
		t.Helper()
		f.lead(l)
		f.add(patience)
		f.lead(l)
		f.take(f.replicas...)
		if got := f.replicas[0].ready(); ready != (got == nil) || !ready && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: readiness is %v, want %q", what, got, want)
		}
		if got := f.toldEvents.all; len(got) == 0 || !strings.Contains(got[len(got)-1], want) || !strings.Contains(got[len(got)-1], "kubectl -n ") {
			t.Errorf("%s: people are told %q, want %q", what, got[max(0, len(got)-1):], want)
		}
	}
	says("at first", "Secret "+f.options.Secret.Namespace+"/theirs does not exist", false)
	ca, leaf := f.theirs(nil, 90*day24)
	broken := func() {
		foreign := f.newAuthority()
		misnamed := f.leaf(ca, f.Now(), f.Now().Add(day24), "other.svc")
		early := f.leaf(ca, f.Now().Add(4*time.Hour), f.Now().Add(day24), f.options.DNSNames...)
		past := f.leaf(ca, f.Now().Add(-2*time.Hour), f.Now().Add(-time.Hour), f.options.DNSNames...)
		for _, test := range []struct {
			what string
			data map[string][]byte
			want string
		}{
			{"no key", map[string][]byte{certKey: leaf.crt, caKey: ca.crt}, "key tls.key is missing"},
			{"no authority", map[string][]byte{certKey: leaf.crt, privateKeyKey: leaf.key}, "key ca.crt is missing, and certs.caBundle has no authority instead"},
			{"another key", map[string][]byte{certKey: leaf.crt, privateKeyKey: ca.key, caKey: ca.crt}, "private key does not match public key"},
			{"a foreign authority", map[string][]byte{certKey: leaf.crt, privateKeyKey: leaf.key, caKey: foreign.crt}, "certificate signed by unknown authority"},
			{"another name", map[string][]byte{certKey: misnamed.crt, privateKeyKey: misnamed.key, caKey: ca.crt}, "certificate is valid for other.svc, not " + f.options.DNSNames[0]},
			{"expired", map[string][]byte{certKey: past.crt, privateKeyKey: past.key, caKey: ca.crt}, "certificate \"webhook\" is valid from "},
			{"too early", map[string][]byte{certKey: early.crt, privateKeyKey: early.key, caKey: ca.crt}, "certificate \"webhook\" is valid from "},
		} {
			f.write("theirs", test.data)
			served := f.replicas[0].hash()
			says(test.what, test.want, served != "")
			told := f.count(reasonUnusable)
			for range 2 {
				f.add(patience)
				f.lead(l)
			}
			if again := f.count(reasonUnusable) - told; again != 0 {
				t.Errorf("%s: people are told %d times more", test.what, again)
			}
			if f.replicas[0].hash() != served {
				t.Errorf("%s: it is served", test.what)
			}
		}
	}
	broken()
	f.put("theirs", ca, leaf)
	f.take(f.replicas...)
	f.settle(l)
	for _, r := range f.replicas {
		f.Must(r.ready())
	}
	broken()
	f.handshakes()
	f.put("theirs", ca, leaf)
	f.settle(l)
	f.add(part(leaf.Certificate, lateAt).Sub(f.Now()))
	says("nobody renews it", "was not renewed and expires at", true)
	f.handshakes()

	_, young := f.theirs(ca, 90*day24)
	f.write("theirs", map[string][]byte{certKey: young.crt, privateKeyKey: young.key})
	f.options.Authorities = ca.crt
	f.lead(l)
	f.take(f.replicas...)
	f.add(f.options.Settle)
	f.take(f.replicas...)
	if f.replicas[0].hash() == hash(young.Certificate) {
		t.Error("a certificate that clocks which are behind would reject is served")
	}
	f.add(fresh)
	f.take(f.replicas...)
	if f.replicas[0].hash() != hash(young.Certificate) {
		t.Errorf("the authority of the options is not used: %v", f.toldEvents.all)
	}
	f.handshakes()
}

// A certificate that was issued in the last minutes of the one that is served is served before that one ends, however fresh it is.
func TestFreshCertificateInTheLastMinute(t *testing.T) {
	f := newFixture(t)
	f.options.Existing = "theirs"
	ca, leaf := f.theirs(nil, 90*day24)
	f.put("theirs", ca, leaf)
	l := f.in(Existing, "a")
	f.lead(l)
	f.take(f.replicas...)
	f.settle(l)
	f.add(leaf.NotAfter.Sub(f.Now()) - time.Minute)
	_, young := f.theirs(ca, 90*day24)
	f.put("theirs", ca, young)
	for range 8 {
		f.lead(l)
		f.take(f.replicas...)
		f.add(glance)
		f.Must(f.replicas[0].ready())
		f.handshakes()
	}
	if f.replicas[0].hash() != hash(young.Certificate) {
		t.Error("it is not served")
	}
}

// A short certificate that has a problem is looked at as often as one that has none, or its end would be missed.
func TestShortCertificateWithAProblem(t *testing.T) {
	f := newFixture(t)
	f.options.Existing = "theirs"
	ca, leaf := f.theirs(nil, 6*time.Minute)
	f.put("theirs", ca, leaf)
	l := f.in(Existing, "a")
	f.lead(l)
	f.take(f.replicas...)
	f.settle(l)
	f.add(part(leaf.Certificate, lateAt).Sub(f.Now()))
	for leads, c := range map[bool]*Certificates{true: l, false: f.replicas[0].Certificates} {
		if wait, err := c.look(t.Context(), leads); err != nil || wait != 15*time.Second {
			t.Errorf("leads %v: it looks again after %s, %v", leads, wait, err)
		}
	}
}

// Each mode is changed into each other one while replicas are replaced one after the other: each new one is ready, and all end with the
// certificate of the new mode.
func TestChangesOfTheMode(t *testing.T) {
	installCertManager(t)
	f := newFixture(t)
	f.options.Existing = "theirs"
	ca, leaf := f.theirs(nil, 90*day24)
	f.put("theirs", ca, leaf)
	walk := []Mode{SelfSigned, CertManager, SelfSigned, Existing, CertManager, Existing, SelfSigned, Auto, Existing, Auto, SelfSigned}
	if testing.Short() {
		walk = walk[4:9] // from each mode to another
	}
	for i, mode := range walk {
		f.writes = nil
		f.Log(i, mode)
		l := f.in(mode, fmt.Sprint("a", i), fmt.Sprint("b", i))
		f.lead(l)
		f.issue()
		f.take(f.replicas...)
		f.add(fresh)
		f.settle(l)
		want := map[Mode]string{SelfSigned: f.options.Secret.Name, CertManager: f.options.Issued, Auto: f.options.Issued, Existing: "theirs"}[mode]
		if got := f.replicas[0].state.Load().served; got.secret.Name != want || len(f.state().trusted) != 0 {
			t.Fatalf("mode %s: Secret %s is served, %d more authorities are trusted", mode, got.secret, len(f.state().trusted))
		}
		for _, r := range f.replicas {
			f.Must(r.ready())
		}
	}
}

// A mode that has no certificate is changed before any replica was ready. A leader of that mode stays until one is.
func TestChangeOfAModeThatHasNoCertificate(t *testing.T) {
	f := newFixture(t)
	f.options.Existing = "theirs"
	l := f.in(Existing, "a")
	options := f.options
	options.Mode = SelfSigned
	b, err := New(&options)
	f.Must(err)
	b.live, b.writer, b.replicas, b.events = f.api, f.api, place{&f.board, "b"}, &f.toldEvents
	for i := range 12 {
		f.lead(l)
		f.take(f.replicas...)
		_, err := b.Reconcile(t.Context(), ctrl.Request{})
		f.Must(err)
		if i == 3 && f.count(reasonIssued) > 0 {
			t.Error("it does not wait for the leader")
		}
		f.add(glance)
	}
	f.Must(b.Ready(nil))
	f.Must(f.replicas[0].ready()) // by what the other mode has
	f.handshakes()
}

// A Secret of the mode that cannot be used any more has replicas serve what they have, and not what another mode has left.
func TestBrokenSecretAfterAChangeOfTheMode(t *testing.T) {
	f, _ := running(t, "a", "b")
	f.options.Existing = "theirs"
	ca, leaf := f.theirs(nil, 90*day24)
	f.put("theirs", ca, leaf)
	l := f.in(Existing, "c", "d")
	f.lead(l)
	f.take(f.replicas...)
	f.add(fresh)
	f.settle(l)
	f.put("theirs", f.newAuthority(), leaf)
	f.settle(l)
	for _, r := range f.replicas {
		if f.Must(r.ready()); r.hash() != hash(leaf.Certificate) {
			t.Errorf("%s serves what another mode has left", r.name)
		}
	}
	if f.count(reasonSourceChanged) != 0 || f.count(reasonUnusable) == 0 {
		t.Errorf("people are told %v", f.toldEvents.all)
	}
	e := f.serve("e") // which has nothing
	f.take(e)
	f.add(f.options.Settle)
	f.take(e)
	f.handshakes()
	f.Must(e.ready())
}

// In mode auto Sallyport's own certificate is served until cert-manager is there, and again when nobody renews cert-manager's.
func TestAuto(t *testing.T) {
	removeCertManager(t)
	f := newFixture(t)
	l := f.in(Auto, "a", "b")
	f.lead(l)
	f.take(f.replicas...)
	f.settle(l)
	own := f.replicas[0].hash()
	if got := f.count(reasonUnusable); got != 0 {
		t.Errorf("without cert-manager people are told %v", f.toldEvents.all)
	}
	f.Must(f.replicas[0].ready())
	installCertManager(t)
	f.Eventually("the leader sees cert-manager", func() bool {
		f.lead(l)
		return f.issue()
	})
	f.add(fresh)
	f.settle(l)
	if got := f.replicas[0].state.Load().served; got.mode != CertManager || f.replicas[0].hash() == own {
		t.Fatalf("the certificate is still that of %s", got.mode)
	}
	if f.count(reasonSourceChanged) != 1 {
		t.Errorf("people are told %v", f.toldEvents.all)
	}
	f.add(76 * day24) // nobody renews it: 14 of its 90 days are left
	f.lead(l)
	f.take(f.replicas...)
	f.settle(l)
	if got := f.replicas[0].state.Load().served; got.mode != SelfSigned {
		t.Fatalf("the certificate is still that of %s", got.mode)
	}
	if f.count(reasonSourceChanged) != 2 || f.count(reasonUnusable) == 0 {
		t.Errorf("people are told %v", f.toldEvents.all)
	}
	f.Must(f.api.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.options.Secret.Namespace, Name: f.options.Issued}}))
	f.issue()
	f.lead(l)
	f.take(f.replicas...)
	f.add(fresh)
	f.settle(l)
	if got := f.replicas[0].state.Load().served; got.mode != CertManager {
		t.Errorf("the certificate that was renewed is not served, but that of %s", got.mode)
	}
}

// definitions are those of cert-manager's kinds that Sallyport uses, in the version of its types.
func definitions(t *testing.T) (all []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager").Output()
	if err != nil {
		t.Fatalf("finding the module of cert-manager: %v", err)
	}
	for _, plural := range []string{"certificates", "issuers", "clusterissuers"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "deploy", "crds", "cert-manager.io_"+plural+".yaml"))
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err == nil {
			err = yaml.Unmarshal(text, crd)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, crd)
	}
	return all
}

// anAdministrator is made once: each new client discovers the kinds again.
var anAdministrator = struct {
	sync.Mutex
	client.Client
}{}

// administrator is a client that knows definitions and cert-manager's kinds.
func administrator(t *testing.T) client.Client {
	t.Helper()
	anAdministrator.Lock()
	defer anAdministrator.Unlock()
	if anAdministrator.Client != nil {
		return anAdministrator.Client
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(certmanagerv1.AddToScheme(scheme))
	c, err := client.New(env.Shared(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	anAdministrator.Client = c
	return c
}

// installCertManager has the API server serve cert-manager's kinds. No controller runs.
func installCertManager(t *testing.T) {
	t.Helper()
	c := administrator(t)
	for _, crd := range definitions(t) {
		if err := c.Create(t.Context(), crd); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	step.T{T: t}.Eventually("the kinds are served", func() bool {
		return c.List(t.Context(), &certmanagerv1.CertificateList{}) == nil && c.List(t.Context(), &certmanagerv1.IssuerList{}) == nil &&
			c.List(t.Context(), &certmanagerv1.ClusterIssuerList{}) == nil
	})
}

func removeCertManager(t *testing.T) {
	t.Helper()
	c := administrator(t)
	for _, crd := range definitions(t) {
		if err := c.Delete(t.Context(), crd); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	step.T{T: t}.Eventually("the kinds are not served", func() bool {
		err := c.List(t.Context(), &certmanagerv1.CertificateList{})
		return meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
	})
}

// issue does what cert-manager does about Certificates of the namespace: it issues what is missing or due, and says so. It reports whether
// it has issued anything. Every second CA is another one.
func (f *fixture) issue() (issued bool) {
	f.Helper()
	c, all := administrator(f.T.T), &certmanagerv1.CertificateList{}
	if err := c.List(f.Context(), all, client.InNamespace(f.options.Secret.Namespace)); err != nil {
		return false
	}
	for _, certificate := range all.Items {
		if certificate.Spec.IsCA {
			continue // whose Secret nobody here reads
		}
		secret := &corev1.Secret{}
		err := f.api.Get(f.Context(), client.ObjectKey{Namespace: certificate.Namespace, Name: certificate.Spec.SecretName}, secret)
		if f.Must(client.IgnoreNotFound(err)); err == nil {
			chain, err := cert.ParseCertsPEM(secret.Data[certKey])
			if f.Must(err); f.Now().Before(part(chain[0], renewAt)) {
				continue
			}
		}
		if certificate.Status.Revision == nil {
			certificate.Status.Revision = new(int)
		}
		if *certificate.Status.Revision++; *certificate.Status.Revision%2 == 1 {
			f.issuer = nil
		}
		ca, leaf := f.theirs(f.issuer, certificate.Spec.Duration.Duration)
		f.issuer, issued = ca, true
		f.put(certificate.Spec.SecretName, ca, leaf)
		certificate.Status.Conditions = []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, Reason: "Ready"}}
		f.Must(c.Status().Update(f.Context(), &certificate))
	}
	return issued
}
