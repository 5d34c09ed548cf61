package certs

import (
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is wrong with a Certificate is in readiness and events, in the words of cert-manager.
func TestWhatIsWrongWithTheCertificate(t *testing.T) {
	removeCertManager(t)
	f := newFixture(t)
	l := f.in(CertManager, "a")
	says := func(want string) {
		t.Helper()
		f.lead(l)
		f.add(patience)
		f.lead(l)
		want = strings.ReplaceAll(want, "NAMESPACE", f.options.Secret.Namespace)
		if got := l.Ready(nil); got == nil || !strings.Contains(got.Error(), want) || !strings.Contains(got.Error(), "kubectl -n ") {
			t.Errorf("readiness is %v, want %q", got, want)
		}
		if got := strings.Join(f.toldEvents.all, "\n"); !strings.Contains(got, want) {
			t.Errorf("people are told %s, want %q", got, want)
		}
	}
	says("cert-manager.io/v1 is not served: install cert-manager, or set certs.mode to self-signed")
	installCertManager(t)
	f.Eventually("the leader sees cert-manager", func() bool {
		f.lead(l)
		return !strings.Contains(l.Ready(nil).Error(), "is not served")
	})
	says("Issuer NAMESPACE/sallyport-webhook-tls-root is not ready; it has no condition: is the controller of cert-manager running?")

	c, certificate := administrator(t), &certmanagerv1.Certificate{}
	key := client.ObjectKey{Namespace: f.options.Secret.Namespace, Name: f.options.Issued}
	f.Must(c.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: key.Name + "-ca"}, certificate))
	if spec := certificate.Spec; !spec.IsCA || spec.RenewBefore.Duration <= 2*f.options.IssuedValidity || spec.IssuerRef.Name != key.Name+"-root" {
		t.Errorf("the CA is %+v", spec)
	}
	f.Must(c.Get(t.Context(), key, certificate))
	if spec := certificate.Spec; spec.IsCA || len(spec.DNSNames) != len(f.options.DNSNames) || spec.PrivateKey.RotationPolicy != certmanagerv1.RotationPolicyAlways ||
		*spec.RevisionHistoryLimit != 1 || spec.SecretName != key.Name || spec.IssuerRef.Name != key.Name+"-ca" {
		t.Errorf("the certificate is %+v", spec)
	}
	certificate.Status = certmanagerv1.CertificateStatus{FailedIssuanceAttempts: ptr.To(3), Conditions: []certmanagerv1.CertificateCondition{
		{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionFalse, Reason: "DoesNotExist", Message: "no Secret"},
		{Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionFalse, Reason: "Failed", Message: "the CA said no"},
	}}
	f.Must(c.Status().Update(t.Context(), certificate))
	says("Certificate NAMESPACE/sallyport-webhook-tls is not ready; Ready DoesNotExist: no Secret; Issuing Failed: the CA said no; 3 failed attempts")

	f.options.Issuer = &Issuer{Group: "cert-manager.io", Kind: "ClusterIssuer", Name: "corp"}
	says("ClusterIssuer corp of certs.issuerRef does not exist: create it, or correct certs.issuerRef")
	f.Must(c.Get(t.Context(), key, certificate))
	if certificate.Spec.IssuerRef.Name != "corp" {
		t.Errorf("the issuer is %+v", certificate.Spec.IssuerRef)
	}
	certificate.Spec.SecretName = "theirs"
	f.Must(c.Update(t.Context(), certificate, client.FieldOwner("somebody")))
	says("Certificate NAMESPACE/sallyport-webhook-tls has another manager: delete it, or resolve the conflict: ")
}

// The caBundle has one writer: what cainjector writes, Sallyport leaves alone, and says if both or nobody would.
func TestWritersOfTheBundle(t *testing.T) {
	f, l := running(t, "a")
	configurations, err := f.live(t.Context())
	f.Must(err)
	for _, c := range configurations {
		before := c.DeepCopyObject().(client.Object)
		if !strings.Contains(keyOf(c), "Mutating") {
			continue
		}
		c.SetAnnotations(map[string]string{certmanagerv1.WantInjectAnnotation: "a/b"})
		endpoints(c)[0].CABundle = nil
		f.Must(f.api.Patch(t.Context(), c, client.MergeFrom(before)))
	}
	f.writes = nil
	look := func(want string) {
		t.Helper()
		for range 2 {
			f.lead(l)
			f.add(patience)
		}
		f.lead(l)
		if got := f.toldEvents.all; len(f.written()) != 0 || !strings.HasPrefix(got[len(got)-1], reasonTwoWriters+": "+want) {
			t.Errorf("writes %v, people are told %q, want %q", f.written(), got[len(got)-1], want)
		}
	}
	look("annotation cert-manager.io/inject-ca-from has another client write the caBundle, so Sallyport does not")
	f.take(f.replicas...)
	if f.replicas[0].ready() == nil {
		t.Error("a replica that is not trusted is ready")
	}
	f.options.Injected = true
	look("nobody writes the caBundle: certs.caBundle is cainjector")
}
