package manager

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/certs"
)

// A replica that has no certificate yet waits for one: it is alive, not ready, and its webhooks are served as soon as there is one.
func TestAReplicaWaitsForItsCertificate(t *testing.T) {
	s := newSite(t)
	immutable := true
	broken := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "sallyport-certificate"}, Immutable: &immutable,
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": nil, "tls.key": nil},
	}
	s.Must(s.api.Create(t.Context(), broken)) // which nobody can repair
	a := s.start("a")
	s.Eventually("it is alive", func() bool { return a.says("healthz") })
	s.Eventually("it leads", func() bool { return strings.HasPrefix(s.leader(), "a_") })
	s.Eventually("it takes connections", func() bool { return !refused(&Options{WebhookHost: host(a.webhooks), WebhookPort: port(a.webhooks)}) })
	if a.says("readyz") || !a.says("healthz") {
		t.Error("without a certificate it is ready, or not alive")
	}
	s.Must(s.api.Delete(t.Context(), broken))
	s.Eventually("it is ready", func() bool { return a.says("readyz") })
	if _, err := echo(s.client(a.webhooks), "x"); err != nil {
		t.Error(err)
	}
	a.signal()
	if err := a.ends(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// Names that end up in objects are checked before anything else is done.
func TestServingFlags(t *testing.T) {
	for line, name := range map[string]string{
		"--shutdown-delay -1s":       "--shutdown-delay",
		"--certificate-settle 0s":    "--certificate-settle",
		"--certificate-poll -1s":     "--certificate-poll",
		"--certificate-secret=":      "--certificate-secret",
		"--webhook-service=":         "--webhook-service",
		"--webhook-configuration=":   "--webhook-configuration",
		"--replica-name Not_A_Name!": "--replica-name",
	} {
		refuses(t, line, name)
	}
	for line, want := range map[string]string{
		"--certificate-mode=other":                `invalid mode "other": must be one of ["auto" "cert-manager" "self-signed" "existing"]`,
		"--certificate-mode=existing":             "needs the name of the existing Secret",
		"--ca-bundle=none":                        "reading the authorities",
		"--ca-bundle=cainjector":                  "requires --certificate-mode=cert-manager or existing",
		"--existing-secret=sallyport-certificate": "need names that differ",
	} {
		if err := parsed(t, line).validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	for given, want := range map[string]certs.Issuer{
		"corp": {Kind: "Issuer", Group: "cert-manager.io", Name: "corp"}, "ClusterIssuer/corp": {Kind: "ClusterIssuer", Group: "cert-manager.io", Name: "corp"},
		"AWSPCAClusterIssuer.awspca.cert-manager.io/corp": {Kind: "AWSPCAClusterIssuer", Group: "awspca.cert-manager.io", Name: "corp"},
	} {
		if got := parsed(t, "--certificate-issuer="+given).certificates("n").Issuer; *got != want {
			t.Errorf("--certificate-issuer=%s is %v, want %v", given, *got, want)
		}
	}
	certificates := parsed(t, "--webhook-service w --webhook-configuration c --certificate-secret s").certificates("n")
	if got := certificates.DNSNames[0]; got != "w.n.svc" {
		t.Errorf("API servers call it w.n.svc, not %s", got)
	}
	if got := certificates.Secret.String(); got != "n/s" {
		t.Errorf("the certificate is in %s", got)
	}
	if all := certificates.Configurations; !slices.Equal(all, []string{"c", "c-policies"}) {
		t.Errorf("the webhook configurations are %v", all)
	}
}

// The authority is replaced and the old one dropped once both replicas have reported on their Leases that they serve the new
// certificate. Every connection meanwhile is by what API servers trust at that moment.
func TestTheCertificateIsReplacedUnderLoad(t *testing.T) {
	s := newSite(t)
	quick := []string{"--certificate-settle", "1s", "--certificate-poll", "100ms"}
	a, b := s.start("a", quick...), s.start("b", quick...)
	s.Eventually("both are ready", func() bool { return a.says("readyz") && b.says("readyz") })
	first, err := s.authorities()
	s.Must(err)
	clients := []*http.Client{s.client(a.webhooks), s.client(b.webhooks)}
	for _, c := range clients {
		c.Transport.(aimed).DisableKeepAlives = true
	}
	load := s.hammer(clients...)
	load.more(10)

	s.Must(s.api.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "sallyport-certificate"}}))
	s.Eventually("the old authority is not trusted any more", func() bool {
		now, err := s.authorities()
		s.Must(err)
		return len(now) > 0 && !bytes.Contains(now, bytes.TrimSpace(first))
	})
	load.more(100)
	load.stop()
	if err := load.failed.Load(); err != nil {
		t.Errorf("a request failed: %v", *err)
	}
}
