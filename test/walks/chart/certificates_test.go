package chart

import (
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

// The validity of cert-manager's certificates. cert-manager's webhook would refuse less than an hour; it does not run.
const short, longer = 20 * time.Second, time.Minute

// TestCertManager has cert-manager's own controllers and its cainjector issue and announce the certificate, while requests are made through two
// API servers: make test-cert-manager. In no step a request may be refused or undecided because of the
// certificate, but where cainjector replaces the caBundle, as that of cert-manager 1.18 did.
func TestCertManager(t *testing.T) {
	if minutes() == 0 {
		t.Skip("left to make test-cert-manager")
	}
	s := newCertSite(t, longer)
	var err error
	s.program, err = env.CertManager(t.Context(), t.Logf, true)
	s.Must(err)
	s.traffic = s.startTraffic()
	t.Cleanup(s.table)
	existingSecret(s)
	s.step("mode auto", faults{}, func(s *certSite) {
		s.upgrade(longer, "certs.mode=auto")
		s.rests(own, 1)
	})
	s.step("an immutable Secret that cannot be used", faults{}, (*certSite).immutable)
	s.step("auto: cert-manager comes", faults{}, func(s *certSite) {
		s.rests(own, 1)
		s.installCertManager()
		s.rests(issued, 1)
	})
	s.step("auto: cert-manager stops", faults{}, func(s *certSite) {
		s.stop("controller")
		s.rests(own, 1)
	})
	s.step("auto: it runs again", faults{}, func(s *certSite) {
		s.start("controller")
		s.rests(issued, 1)
	})
	s.step("mode cert-manager", faults{}, func(s *certSite) {
		s.upgrade(short, "certs.mode=cert-manager")
		s.rests(issued, 1)
	})
	s.step("certificates of 20 s", faults{}, func(s *certSite) { s.elapse(minutes()) })
	s.step("a new CA, twice", faults{}, func(s *certSite) { s.rotates(); s.rotates() })
	s.step("a replica restarts during a rotation", faults{}, func(s *certSite) {
		for _, pod := range s.Kubelet.Replicas() {
			s.renew(issued + "-ca")
			s.renew(issued)
			s.remove("pod " + pod)
			s.rolledOut()
			s.rests(issued, 1)
		}
	})
	for _, what := range []string{"secret " + issued, "secret " + issued + "-ca", "certificate " + issued, "certificate " + issued + "-ca", "issuer " + issued + "-ca", "issuer " + issued + "-root"} {
		s.step(what+" is deleted", faults{}, func(s *certSite) {
			before := s.current(issued)
			s.remove(what)
			s.another(issued, before)
			s.rests(issued, 1)
		})
	}
	s.step("mode self-signed", faults{}, func(s *certSite) {
		s.upgrade(short, "certs.mode=self-signed")
		s.rests(own, 1)
	})
	s.step("mode cert-manager again", faults{}, func(s *certSite) {
		s.upgrade(short, "certs.mode=cert-manager")
		s.rests(issued, 1)
	})
	s.step("cainjector writes the caBundle", faults{}, func(s *certSite) {
		s.start("cainjector")
		s.upgrade(short, "certs.caBundle=cainjector")
		s.rests(issued)
		s.elapse(2 * short)
	})
	s.step("cainjector: a new CA, twice", faults{}, func(s *certSite) { s.rotates(); s.rotates() })
	s.step("cainjector: policies come and go", faults{}, (*certSite).registers)
	s.step("cainjector is stopped: a new CA", faults{}, func(s *certSite) {
		s.upgrade(2 * longer)
		s.Until("a certificate of two minutes is issued", func() (string, bool) { return "", s.validity(issued) == 2*longer })
		s.rests(issued)
		s.stop("cainjector")
		served := s.current(issued)
		s.renew(issued + "-ca")
		s.renew(issued)
		s.stays(served, 20*time.Second)
		s.start("cainjector")
		s.rests(issued)
	})
	s.step("cainjector without merging: a new CA", faults{handshakes: true}, func(s *certSite) {
		s.stop("cainjector")
		s.start("cainjector", "--feature-gates=CAInjectorMerging=false")
		s.renew(issued + "-ca")
		s.renew(issued)
		s.rests(issued, 1)
		s.lasts(2 * behind) // for the clock that is behind
	})
	s.step("Sallyport writes the caBundle again", faults{}, func(s *certSite) {
		s.upgrade(short, "certs.caBundle=sallyport")
		s.stop("cainjector")
		s.renew(issued + "-ca")
		s.rests(issued, 1)
	})
}

// minutes returns how long certificates of 20 seconds follow one another. It is 0 if these tests are not asked for.
func minutes() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("SALLYPORT_TEST_CERT_MANAGER"))
	return d
}

// elapse lets time pass, in which certificates are renewed.
func (s *certSite) elapse(d time.Duration) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		s.another(issued, s.current(issued))
	}
	s.rests(issued)
}

// rotates has cert-manager make a new CA, and waits until its first certificate is served.
func (s *certSite) rotates() {
	s.Helper()
	s.renew(issued + "-ca")
	s.another(issued, s.current(issued))
	s.rests(issued)
}

// stays waits for some time, and fails if another certificate is served then.
func (s *certSite) stays(served string, d time.Duration) {
	s.Helper()
	s.lasts(d)
	found, err := install.ReadCertificates(s.Context(), s.clientset)
	s.Must(err)
	if found.Served[0] != served || found.Served[1] != served {
		s.Errorf("%v are served, which the caBundle does not trust, instead of %s", found.Served, served)
	}
}

// lasts makes requests for some time.
func (s *certSite) lasts(d time.Duration) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		s.more(1)
	}
}

// registers has policies on other kinds come and go: their entries have the caBundle of the others.
func (s *certSite) registers() {
	s.Helper()
	const refused = "create configmap refused --dry-run=server --namespace default"
	for range 3 {
		s.apply(policyOf("configmaps", `
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
`, denies("NameRefused", "that is no name for a ConfigMap", `input.request.object.metadata.name == "refused"`), tested(`{"object": {"metadata": {"name": "refused"}}}`)))
		s.kubectl("wait rego/configmaps --for=condition=Ready --timeout=2m")
		s.Until("the policy refuses", func() (string, bool) {
			said, ok := s.try(refused)
			return said, !ok && strings.Contains(said, "NameRefused")
		})
		s.kubectl("delete rego configmaps")
		s.Until("it does not refuse", func() (string, bool) { return s.try(refused) })
	}
}
