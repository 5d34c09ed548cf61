// Command manifests prints what CDI's operator would install for cdi-apiserver and cdi-controller, as a JSON list: definitions, roles,
// certificates, webhooks.
package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"kubevirt.io/containerized-data-importer/pkg/operator/resources"
	certs "kubevirt.io/containerized-data-importer/pkg/operator/resources/cert"
	"kubevirt.io/containerized-data-importer/pkg/operator/resources/cluster"
	"kubevirt.io/containerized-data-importer/pkg/operator/resources/namespaced"
	"kubevirt.io/containerized-data-importer/pkg/util/cert"
	"kubevirt.io/containerized-data-importer/pkg/util/cert/triple"
)

const namespace = "cdi"

// port is where cdi-apiserver listens.
const port int32 = 8443

func main() {
	if err := print(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func print() error {
	var items []any
	definition := map[string]any{}
	if err := yaml.Unmarshal([]byte(resources.CDICRDs["cdi"]), &definition); err != nil {
		return err
	}
	items = append(items, definition)
	args := &cluster.FactoryArgs{Namespace: namespace, Logger: logr.Discard()}
	for _, group := range []string{"crd-resources", "apiserver-rbac", "controller-rbac", "aggregate-roles"} {
		objects, err := cluster.CreateStaticResourceGroup(group, args)
		if err != nil {
			return err
		}
		for _, o := range objects {
			items = append(items, o)
		}
	}
	for _, group := range []string{"apiserver", "controller"} {
		objects, err := namespaced.CreateResourceGroup(group, &namespaced.FactoryArgs{
			Namespace: namespace, OperatorVersion: "v1", ControllerReplicas: 1, APIServerReplicas: 1, Verbosity: "1", PullPolicy: "Always",
		})
		if err != nil {
			return err
		}
		for _, o := range objects {
			switch o.(type) {
			case *appsv1.Deployment, *corev1.Service: // the test is both
			default:
				items = append(items, o)
			}
		}
	}
	ca, err := certificates(&items)
	if err != nil {
		return err
	}
	objects, err := cluster.CreateAllDynamicResources(args)
	if err != nil {
		return err
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *admissionv1.ValidatingWebhookConfiguration:
			for i := range o.Webhooks {
				at(&o.Webhooks[i].ClientConfig, ca)
			}
		case *admissionv1.MutatingWebhookConfiguration:
			for i := range o.Webhooks {
				at(&o.Webhooks[i].ClientConfig, ca)
			}
		default:
			continue
		}
		items = append(items, o)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

func at(config *admissionv1.WebhookClientConfig, ca []byte) {
	to := port
	config.Service.Port, config.CABundle = &to, ca
}

// certificates appends the certificates of CDI, and returns the authority of its webhooks.
func certificates(items *[]any) (webhooks []byte, err error) {
	for _, d := range certs.CreateCertificateDefinitions(&certs.FactoryArgs{Namespace: namespace}) {
		ca, err := triple.NewCA(d.SignerSecret.Name)
		if err != nil {
			return nil, err
		}
		fill(d.SignerSecret, ca)
		d.CertBundleConfigmap.APIVersion, d.CertBundleConfigmap.Kind = "v1", "ConfigMap"
		d.CertBundleConfigmap.Data = map[string]string{"ca-bundle.crt": string(encode(ca.Cert))}
		*items = append(*items, d.SignerSecret, d.CertBundleConfigmap)
		if d.SignerSecret.Name != "cdi-apiserver-signer" {
			continue
		}
		service := *d.TargetService
		pair, err := triple.NewServerKeyPair(ca, service+"."+namespace+".svc", service, namespace, "cluster.local", nil, nil)
		if err != nil {
			return nil, err
		}
		fill(d.TargetSecret, pair)
		*items = append(*items, d.TargetSecret)
		webhooks = encode(ca.Cert)
	}
	return webhooks, nil
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func fill(s *corev1.Secret, pair *triple.KeyPair) {
	s.APIVersion, s.Kind = "v1", "Secret"
	s.Data = map[string][]byte{"tls.crt": encode(pair.Cert), "tls.key": cert.EncodePrivateKeyPEM(pair.Key)}
}
