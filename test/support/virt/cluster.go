// Package virt installs the real virt-api and virt-controller of KubeVirt on a control plane, with an agent in the place of its nodes.
package virt

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

// Namespace is the namespace of KubeVirt.
const Namespace = "kubevirt"

// Cluster is a control plane with KubeVirt.
type Cluster struct {
	client.Client
	// Agent plays the nodes.
	Agent  *Agent
	Plane  *env.ControlPlane
	Scheme *kruntime.Scheme

	folder   string // with certificates and logs
	programs map[string]string
	objects  []unstructured.Unstructured
	crds     []*apiextensionsv1.CustomResourceDefinition
	undo     []func()
}

// Prepare builds the programs of KubeVirt unless they are there, which takes minutes. The folder gets certificates and logs.
func Prepare(ctx context.Context, folder string, logf func(format string, args ...any)) (c *Cluster, err error) {
	c = &Cluster{folder: folder, Scheme: kruntime.NewScheme()}
	if err := errors.Join(clientgoscheme.AddToScheme(c.Scheme), v1alpha1.AddToScheme(c.Scheme), virtv1.AddToScheme(c.Scheme), snapshotv1.AddToScheme(c.Scheme)); err != nil {
		return nil, err
	}
	if c.programs, err = env.KubeVirt(ctx, logf, true); err != nil {
		return nil, err
	}
	c.objects, c.crds, err = env.Manifests(ctx, c.programs["kubevirt-manifests"])
	return c, err
}

// Configure adds to the options of a control plane what KubeVirt needs.
func (c *Cluster) Configure(o *env.Options) error {
	flags, err := c.frontProxy()
	o.ControllerManager, o.APIServerFlags, o.CRDs = true, flags, append(o.CRDs, c.crds...)
	// Nodes do not send heartbeats.
	o.ControllerManagerFlags = map[string]string{"controllers": "*,-node-lifecycle-controller,-taint-eviction-controller"}
	return err
}

// frontProxy returns the flags with which the API server tells virt-api who sends a request.
func (c *Cluster) frontProxy() (map[string]string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	self := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front-proxy"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	crt, err := c.file("front-proxy.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))
	if err != nil {
		return nil, err
	}
	secret, err := c.file("front-proxy.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	return map[string]string{
		"requestheader-client-ca-file": crt, "proxy-client-cert-file": crt, "proxy-client-key-file": secret,
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
	}, err
}

func (c *Cluster) file(name string, content []byte) (string, error) {
	path := filepath.Join(c.folder, name)
	return path, os.WriteFile(path, content, 0o600)
}

// Install starts virt-api, virt-controller and the agent, with the roles of KubeVirt. If it fails, the caller calls Stop.
func (c *Cluster) Install(ctx context.Context, plane *env.ControlPlane) (err error) {
	c.Plane = plane
	if c.Client, err = client.New(plane.Config, client.Options{Scheme: c.Scheme}); err != nil {
		return err
	}
	const port = 8443
	address, err := plane.Service(ctx, Namespace, "virt-api", port)
	if err != nil {
		return err
	}
	registrations, err := c.createObjects(ctx)
	if err != nil {
		return err
	}
	err = c.Create(ctx, &discoveryv1.EndpointSlice{ // the API server does not ask an API without an endpoint
		ObjectMeta:  metav1.ObjectMeta{Namespace: Namespace, Name: "virt-api", Labels: map[string]string{discoveryv1.LabelServiceName: "virt-api"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(port))}},
	})
	if err != nil {
		return err
	}
	if c.Agent, err = c.newAgent(ctx); err != nil {
		return err
	}
	if err := c.virtAPI(ctx, address, port); err != nil {
		return err
	}
	for _, o := range registrations {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	crt, key, err := c.pair(ctx, "kubevirt-controller-certs")
	if err != nil {
		return err
	}
	err = c.daemon(ctx, "virt-controller", "kubevirt-controller", "--listen="+address, "--port=8444", "--prom-cert-file="+crt, "--prom-key-file="+key)
	if err != nil {
		return err
	}
	return await(ctx, "the API of the subresources is available", c.subresourcesAvailable)
}

// createObjects creates what KubeVirt's operator would create, and returns what needs virt-api.
func (c *Cluster) createObjects(ctx context.Context) (registrations []*unstructured.Unstructured, err error) {
	for i := range c.objects {
		o := &c.objects[i]
		unstructured.RemoveNestedField(o.Object, "status")
		switch o.GetKind() {
		case "CustomResourceDefinition":
		case "KubeVirt":
			if err := c.createKubeVirt(ctx, o); err != nil {
				return nil, err
			}
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService":
			registrations = append(registrations, o)
		default:
			if err := c.Create(ctx, o); err != nil {
				return nil, err
			}
		}
	}
	return registrations, nil
}

// createKubeVirt creates the KubeVirt object, with a feature gate, and a status as that of the operator: without a phase, its configuration does
// not count.
func (c *Cluster) createKubeVirt(ctx context.Context, o *unstructured.Unstructured) error {
	err := unstructured.SetNestedSlice(o.Object, []any{"HotplugVolumes"}, "spec", "configuration", "developerConfiguration", "featureGates")
	if err != nil {
		return err
	}
	if err := c.Create(ctx, o); err != nil {
		return err
	}
	deployed := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Deployed","defaultArchitecture":"amd64"}}`))
	return c.Status().Patch(ctx, o, deployed)
}

// virtAPI starts virt-api and waits until it listens.
func (c *Cluster) virtAPI(ctx context.Context, address string, port int) error {
	crt, key, err := c.pair(ctx, "kubevirt-virt-api-certs")
	if err != nil {
		return err
	}
	handlerCrt, handlerKey, err := c.pair(ctx, "kubevirt-virt-handler-certs")
	if err != nil {
		return err
	}
	err = c.daemon(ctx, "virt-api", "kubevirt-apiserver", "--listen="+address, "--port="+strconv.Itoa(port), "--tls-cert-file="+crt,
		"--tls-key-file="+key, "--handler-cert-file="+handlerCrt, "--handler-key-file="+handlerKey, "--console-server-port="+strconv.Itoa(c.Agent.port))
	if err != nil {
		return err
	}
	return await(ctx, "virt-api listens", func(context.Context) bool {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(port)), time.Second)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
}

func (c *Cluster) subresourcesAvailable(ctx context.Context) bool {
	api := &unstructured.Unstructured{}
	api.SetAPIVersion("apiregistration.k8s.io/v1")
	api.SetKind("APIService")
	if c.Get(ctx, client.ObjectKey{Name: "v1.subresources.kubevirt.io"}, api) != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(api.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		of, is := condition.(map[string]any)
		return is && of["type"] == "Available" && of["status"] == "True"
	})
}

// pair returns the files of a certificate of KubeVirt.
func (c *Cluster) pair(ctx context.Context, name string) (crt, key string, err error) {
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, secret); err != nil {
		return "", "", err
	}
	crt, failed := c.file(name+".crt", secret.Data[corev1.TLSCertKey])
	key, err = c.file(name+".key", secret.Data[corev1.TLSPrivateKeyKey])
	return crt, key, errors.Join(failed, err)
}

// daemon runs a program of KubeVirt with the rights of a ServiceAccount until Stop.
func (c *Cluster) daemon(ctx context.Context, name, account string, args ...string) error {
	kubeconfig, err := c.Plane.ServiceAccountKubeconfig(ctx, Namespace, account)
	if err != nil {
		return err
	}
	logs, err := os.Create(filepath.Join(c.folder, name+".log"))
	if err != nil {
		return err
	}
	c.undo = append(c.undo, func() { _ = logs.Close() })
	command := exec.Command(c.programs[name], append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	command.Stdout, command.Stderr = logs, logs
	process, err := env.StartDaemon(command)
	if err == nil {
		c.undo = append(c.undo, func() { _ = process.Kill() })
	}
	return err
}

// Start starts a control plane with those CustomResourceDefinitions and with KubeVirt. The caller calls stop, also after an error.
func Start(ctx context.Context, folder string, crds []*apiextensionsv1.CustomResourceDefinition, logf func(format string, args ...any)) (
	c *Cluster, stop func() error, err error,
) {
	stop = func() error { return nil }
	if c, err = Prepare(ctx, folder, logf); err != nil {
		return nil, stop, err
	}
	options := env.Options{CRDs: crds}
	if err := c.Configure(&options); err != nil {
		return nil, stop, err
	}
	plane, err := env.Start(ctx, options)
	if err != nil {
		return nil, stop, err
	}
	stop = func() error {
		c.Stop()
		return plane.Stop()
	}
	return c, stop, c.Install(ctx, plane)
}

// Unvalidated removes a webhook of KubeVirt that validates objects.
func (c *Cluster) Unvalidated(ctx context.Context, name string) error {
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := c.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		of := &list.Items[i]
		before := len(of.Webhooks)
		of.Webhooks = slices.DeleteFunc(of.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == name })
		if len(of.Webhooks) < before {
			return c.Update(ctx, of)
		}
	}
	return fmt.Errorf("KubeVirt has no webhook %s", name)
}

// Stop ends what was started. The control plane is the caller's.
func (c *Cluster) Stop() {
	for _, undo := range slices.Backward(c.undo) {
		undo()
	}
	c.undo = nil
}

// Logs returns the ends of the logs of KubeVirt's programs.
func (c *Cluster) Logs() (text string) { return c.LogsAbout("") }

// LogsAbout returns so many of the last lines that have a text.
func (c *Cluster) LogsAbout(part string) (text string) {
	for _, name := range []string{"virt-api", "virt-controller"} {
		log, _ := os.ReadFile(filepath.Join(c.folder, name+".log"))
		about := slices.DeleteFunc(strings.SplitAfter(string(log), "\n"), func(line string) bool { return !strings.Contains(line, part) })
		text += fmt.Sprintf("the end of the log of %s:\n%s\n", name, install.Tail(strings.Join(about, ""), 60))
	}
	return text
}

// patience is how long await waits, on a busy machine too.
const patience = 3 * time.Minute

// await waits until something is so.
func await(ctx context.Context, what string, is func(context.Context) bool) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) { return is(ctx), nil })
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}
