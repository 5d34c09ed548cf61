package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The certificate that replicas serve, and who trusts it, can be seen without reading the cluster's objects by hand.
func TestWhyCertificate(t *testing.T) {
	tm := newTeam(t)
	tm.sallyport("why certificate", 0, "Certificate of the webhooks in namespace sallyport-system", "sallyport-certificate: issued by",
		"valid until", "trusted by all webhook configurations", "serves sallyport-certificate")
	tm.sallyport("why certificate -o json", 0, `"mode": "auto"`, `"name": "sallyport-certificate"`)
	tm.sallyport("why certificate --as "+tm.namespace+"-nobody", 1, "finding the certificate of the webhooks")
}

// Without cert-manager, the report of mode cert-manager says so, and that of mode auto does not.
func TestWhyCertificateWithoutCertManager(t *testing.T) {
	c := &cluster{WithWatch: interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "cert-manager.io", Kind: "Certificate"}}
		},
	})}
	for mode, want := range map[string]string{"cert-manager": noCertManager, "auto": ""} {
		r := &certificateReport{Mode: mode, Namespace: "n", issued: "w-tls"}
		if r.certManager(t.Context(), c); r.CertManager != want || len(r.Unknown) > 0 || want != "" && r.next() != "" {
			t.Errorf("mode %s: %+v, next %q", mode, r, r.next())
		}
	}
}

// A Secret of another mode, which no webhook configuration trusts, is no problem.
func TestWhyCertificateOfAnotherSource(t *testing.T) {
	end := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &certificateReport{Replicas: map[string]string{"a": "s"}, Secrets: []certificateSecret{
		{Name: "s", Issuer: "CN=x", NotAfter: &end}, {Name: "other", Issuer: "CN=y", NotAfter: &end, Problem: "not trusted by c"},
	}}
	var text strings.Builder
	if err := render(&text, r, end); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "Z: trusted by all") || !strings.Contains(got, "Z: not served, not trusted by c") || strings.Contains(got, "Next step:") {
		t.Errorf("got\n%s", got)
	}
}

// What is wrong is told with the command that shows more.
func TestWhyCertificateProblems(t *testing.T) {
	end := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	good := certificateSecret{Name: "s", Issuer: "CN=x", NotAfter: &end}
	untrusted := good
	untrusted.Problem = "not trusted by ValidatingWebhookConfiguration sallyport: x509: unknown authority"
	for name, tc := range map[string]struct {
		r    certificateReport
		want string
	}{
		"all is well":      {certificateReport{Secrets: []certificateSecret{good}, Replicas: map[string]string{"a": "s"}}, ""},
		"untrusted":        {certificateReport{Secrets: []certificateSecret{untrusted}, Replicas: map[string]string{"a": "s"}}, "kubectl logs -l app.kubernetes.io/name=sallyport"},
		"no replica":       {certificateReport{Secrets: []certificateSecret{good}}, "kubectl get pods"},
		"a failed request": {certificateReport{issued: "w-tls", CertManager: "Ready=False no issuer; 3 failed attempts", Replicas: map[string]string{"a": "none"}}, "kubectl describe certificates.cert-manager.io w-tls"},
	} {
		tc.r.Namespace = "n"
		var text strings.Builder
		if err := render(&text, &tc.r, end); err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(text.String(), "Next step:"); has != (tc.want != "") || !strings.Contains(text.String(), tc.want) {
			t.Errorf("%s: got\n%s", name, &text)
		}
	}
}
