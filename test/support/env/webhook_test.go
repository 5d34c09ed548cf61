package env

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
)

// serveRefusals serves a webhook that refuses everything on a Service's address, and returns its certificate.
func serveRefusals(t *testing.T, cp *ControlPlane, namespace, name string, port int32) (caBundle []byte) {
	t.Helper()
	address, err := cp.Service(t.Context(), namespace, name, port)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := cp.Service(t.Context(), namespace, name, port); err != nil || again != address {
		t.Errorf("Service() of an existing one = %s, %v; want %s", again, err, address)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(name+"."+namespace+".svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Result: &metav1.Status{Message: "refused at " + r.Host + r.URL.Path},
			AuditAnnotations: map[string]string{"why": "because"},
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	_ = server.Listener.Close()
	server.Listener, server.TLS = listener, &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return certificate
}

func TestWebhookOnServiceAddress(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	// A proxy in the environment of the test must not come between the API server and the webhook.
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("https_proxy", "http://127.0.0.1:1")
	audit := filepath.Join(t.TempDir(), "audit.log")
	cp, err := Start(t.Context(), Options{AuditLog: audit})
	if err != nil {
		t.Fatal(err)
	}
	const namespace, name, port = "gate", "webhook", 8443
	path, target, none := "/refuse", int32(port), admissionregistrationv1.SideEffectClassNone
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "refuse.test.sallyport.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service:  &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name, Path: &path, Port: &target},
				CABundle: serveRefusals(t, cp, namespace, name, port),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	client := kubernetes.NewForConfigOrDie(cp.Config)
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Create(t.Context(), configuration, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The API server reads configurations and Services from caches, which follow a moment later.
	want := `denied the request: refused at webhook.gate.svc:8443/refuse`
	eventually(t, "the webhook to be called", func(ctx context.Context) error {
		_, stderr, code := cp.Kubectl(ctx, "create", "configmap", "x", "-n", namespace, "--dry-run=server")
		if code != 1 || !strings.Contains(stderr, want) {
			return fmt.Errorf("exit code %d: %s", code, stderr)
		}
		return nil
	})
	eventually(t, "the webhook's annotation in the audit log", func(context.Context) error {
		content, err := os.ReadFile(audit)
		if err == nil && !strings.Contains(string(content), `"refuse.test.sallyport.dev/why":"because"`) {
			return fmt.Errorf("the log has %d bytes, not with it", len(content))
		}
		return err
	})
}
