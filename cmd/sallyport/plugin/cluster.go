package plugin

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// scheme knows the kinds that the plugin reads and writes.
var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
}

// The kinds as the API server names them.
const machineKind, operationKind, policyKind = "VirtualMachine", "VirtualMachineOperation", "RegoPolicy"

// qps and burst are enough for what one command asks at once.
const qps, burst = 50, 100

// cluster is where a command works: an API server, and a namespace.
type cluster struct {
	client.WithWatch
	config    *rest.Config
	namespace string
}

// connect finds the cluster that the flags, the environment and the kubeconfig name.
func (p *plugin) connect() (*cluster, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("finding the namespace: %w", err)
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "kubectl-sallyport")
	config.QPS, config.Burst = qps, burst
	config.WarningHandlerWithContext = warner{rest.NewWarningWriter(p.ErrOut, rest.WarningWriterOptions{Deduplicate: true})}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &cluster{WithWatch: c, config: config, namespace: namespace}, nil
}

// live gives a client that finds any kind that the cluster serves.
func (p *plugin) live(c *cluster) (client.Client, error) {
	mapper, err := p.flags.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("finding out what kinds there are: %w", err)
	}
	live, err := client.New(c.config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return live, nil
}

// mapper knows the kinds by heart, which saves asking the API server for all that it serves.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{machineKind, operationKind} {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(v1alpha1.GroupVersion.WithKind(policyKind), meta.RESTScopeRoot)
	m.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	m.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	m.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"), meta.RESTScopeRoot)
	m.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	return m
}

func (c *cluster) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.namespace, Name: name}
}
