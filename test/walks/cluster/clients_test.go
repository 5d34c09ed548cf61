package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// With an authority for clients, an API server that docs/certificates.md has told to show a certificate is answered, and nobody else.
// Events then name who was refused.
func TestOnlyAPIServersAreAnswered(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	t.Parallel()
	dir := t.TempDir()
	clientFiles(t, dir, "kube-apiserver")
	s := site.Start(t, site.Options{
		Plane: env.Options{APIServerFlags: map[string]string{"admission-control-config-file": admissionConfiguration(t, dir)}},
		Flags: []string{"--client-ca-file=" + filepath.Join(dir, "ca.crt"), "--client-names=kube-apiserver"},
	})
	//nolint:gosec // a forger trusts anybody
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", s.Sallyport.Webhooks())
	if err == nil { // with TLS 1.3 the refusal comes with what is read first
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("who shows no certificate got %v", err)
	}

	c, w := kubernetes.NewForConfigOrDie(s.Plane.Config), step.T{T: t}
	protected := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept", Labels: map[string]string{"sallyport.dev/deletion-protection": "enabled"}}}
	_, err = c.CoreV1().ConfigMaps("default").Create(t.Context(), protected, metav1.CreateOptions{})
	w.Must(err)
	remove := func(dryRun ...string) error {
		return c.CoreV1().ConfigMaps("default").Delete(t.Context(), "kept", metav1.DeleteOptions{DryRun: dryRun})
	}
	w.Eventually("deletion-protected is registered", func() bool {
		err := remove(metav1.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "DeletionProtected")
	})
	if err := remove(); err == nil || !strings.Contains(err.Error(), "DeletionProtected") {
		t.Fatalf("deleting it: %v", err)
	}
	who, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	w.Must(err)
	w.Eventually("an event names who was refused", func() bool {
		list, err := c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=DeletionProtected"})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return strings.Contains(e.Note, "DELETE by "+who.Status.UserInfo.Username)
		})
	})
}

// admissionConfiguration writes the two files of docs/certificates.md. The port is part of the name because it is not 443.
func admissionConfiguration(t *testing.T, dir string) string {
	t.Helper()
	kubeconfig, configuration := filepath.Join(dir, "webhooks.yaml"), filepath.Join(dir, "admission.yaml")
	plugin := "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: " + kubeconfig + "}"
	for file, content := range map[string]string{
		kubeconfig: fmt.Sprintf("apiVersion: v1\nkind: Config\nusers:\n- name: %s.%s.svc:%d\n  user: {client-certificate: %s, client-key: %s}\n",
			install.Service, install.Namespace, install.Port, filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")),
		configuration: "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n" +
			"- name: ValidatingAdmissionWebhook\n  configuration: " + plugin + "\n- name: MutatingAdmissionWebhook\n  configuration: " + plugin + "\n",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return configuration
}

// clientFiles writes an authority, and the certificate and key of a client with that name.
func clientFiles(t *testing.T, dir, name string) {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey, clientKey := key(), key()
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "clients"}, caKey)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, clientKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(clientKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		"ca.crt":     pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: ca.Raw}),
		"client.crt": pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}),
		"client.key": private,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
