//go:build kubevirt

package kubevirt

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/step"
)

// installed is the namespace of KubeVirt.
const installed = "kubevirt"

// site is a cluster with KubeVirt.
type site struct {
	step.T
	client.Client
	plane    *env.ControlPlane
	agent    *agent
	scheme   *kruntime.Scheme
	folder   string // with certificates and logs
	programs map[string]string
}

// newSite starts everything.
func newSite(t *testing.T) *site {
	ctrl.SetLogger(klog.NewKlogr())
	s := &site{T: step.T{T: t}, folder: t.TempDir(), scheme: kruntime.NewScheme()}
	ctx := context.WithoutCancel(t.Context())
	var err error
	s.programs, err = env.KubeVirt(ctx, t.Logf, true)
	s.Must(err)
	objects, defined, err := env.Manifests(ctx, s.programs["kubevirt-manifests"])
	s.Must(err)
	crds, err := charts.CRDs()
	s.Must(err)
	s.plane, err = env.Start(ctx, env.Options{
		CRDs: append(crds, defined...), ControllerManager: true, APIServerFlags: s.frontProxy(),
		// Nodes do not send heartbeats.
		ControllerManagerFlags: map[string]string{"controllers": "*,-node-lifecycle-controller,-taint-eviction-controller"},
	})
	s.Must(err)
	t.Cleanup(func() { s.Must(s.plane.Stop()) })
	s.Must(errors.Join(clientgoscheme.AddToScheme(s.scheme), v1alpha1.AddToScheme(s.scheme), virtv1.AddToScheme(s.scheme)))
	s.Client, err = client.New(s.plane.Config, client.Options{Scheme: s.scheme})
	s.Must(err)
	s.kubevirt(objects)
	return s
}

// frontProxy returns the flags with which the API server tells virt-api who sends a request.
func (s *site) frontProxy() map[string]string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.Must(err)
	self := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front-proxy"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	s.Must(err)
	private, err := x509.MarshalECPrivateKey(key)
	s.Must(err)
	crt := s.file("front-proxy.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))
	return map[string]string{
		"requestheader-client-ca-file": crt, "proxy-client-cert-file": crt,
		"proxy-client-key-file":              s.file("front-proxy.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})),
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
	}
}

func (s *site) file(name string, content []byte) string {
	path := filepath.Join(s.folder, name)
	s.Must(os.WriteFile(path, content, 0o600))
	return path
}

// kubevirt starts virt-api, virt-controller and the agent, with the roles of KubeVirt.
func (s *site) kubevirt(objects []unstructured.Unstructured) {
	ctx := context.WithoutCancel(s.Context())
	const port = 8443
	address, err := s.plane.Service(ctx, installed, "virt-api", port)
	s.Must(err)
	var last []*unstructured.Unstructured // needs virt-api
	for i := range objects {
		switch o := &objects[i]; o.GetKind() {
		case "CustomResourceDefinition":
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService":
			last = append(last, o)
		default:
			unstructured.RemoveNestedField(o.Object, "status")
			s.Must(s.Create(ctx, o))
		}
	}
	s.Must(s.Create(ctx, &discoveryv1.EndpointSlice{ // the API server does not ask an API without an endpoint
		ObjectMeta:  metav1.ObjectMeta{Namespace: installed, Name: "virt-api", Labels: map[string]string{discoveryv1.LabelServiceName: "virt-api"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(port))}},
	}))
	s.agent = newAgent(s)
	crt, key := s.pair("kubevirt-virt-api-certs")
	handlerCrt, handlerKey := s.pair("kubevirt-virt-handler-certs")
	s.daemon("virt-api", "--kubeconfig="+s.as("kubevirt-apiserver"), "--listen="+address, "--port="+strconv.Itoa(port), "--tls-cert-file="+crt,
		"--tls-key-file="+key, "--handler-cert-file="+handlerCrt, "--handler-key-file="+handlerKey, "--console-server-port="+strconv.Itoa(s.agent.port))
	s.Eventually("virt-api listens", func() bool {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(port)), time.Second)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	for _, o := range last {
		unstructured.RemoveNestedField(o.Object, "status")
		s.Must(s.Create(ctx, o))
	}
	crt, key = s.pair("kubevirt-controller-certs")
	s.daemon("virt-controller", "--kubeconfig="+s.as("kubevirt-controller"), "--listen="+address, "--port=8444", "--prom-cert-file="+crt,
		"--prom-key-file="+key)
	s.Eventually("the API of the subresources is available", func() bool {
		api := &unstructured.Unstructured{}
		api.SetAPIVersion("apiregistration.k8s.io/v1")
		api.SetKind("APIService")
		s.Must(s.Get(ctx, client.ObjectKey{Name: "v1.subresources.kubevirt.io"}, api))
		conditions, _, _ := unstructured.NestedSlice(api.Object, "status", "conditions")
		for _, c := range conditions {
			if c, is := c.(map[string]any); is && c["type"] == "Available" && c["status"] == "True" {
				return true
			}
		}
		return false
	})
}

// pair returns the files of a certificate of KubeVirt.
func (s *site) pair(name string) (crt, key string) {
	secret := &corev1.Secret{}
	s.Must(s.Get(s.Context(), client.ObjectKey{Namespace: installed, Name: name}, secret))
	return s.file(name+".crt", secret.Data[corev1.TLSCertKey]), s.file(name+".key", secret.Data[corev1.TLSPrivateKeyKey])
}

func (s *site) as(account string) string {
	kubeconfig, err := s.plane.ServiceAccountKubeconfig(context.WithoutCancel(s.Context()), installed, account)
	s.Must(err)
	return kubeconfig
}

// daemon runs a program of KubeVirt until the test ends, and shows the end of its log if the test fails.
func (s *site) daemon(name string, args ...string) {
	logs, err := os.Create(filepath.Join(s.folder, name+".log"))
	s.Must(err)
	command := exec.Command(s.programs[name], args...)
	command.Stdout, command.Stderr = logs, logs
	process, err := env.StartDaemon(command)
	s.Must(err)
	s.Cleanup(func() {
		_ = process.Kill()
		text, _ := os.ReadFile(logs.Name())
		_ = logs.Close()
		if s.Failed() {
			s.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-6000):])
		}
	})
}

// namespace creates a namespace.
func (s *site) namespace() string {
	s.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "machines-"}}
	s.Must(s.Create(s.Context(), ns))
	return ns.Name
}

// in is the site of a part of the test.
func (s *site) in(t *testing.T) *site {
	inner := *s
	inner.T = step.T{T: t}
	return &inner
}
