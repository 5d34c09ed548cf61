package plugin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// scheme knows the kinds that the plugin reads and writes, ownKinds those of Sallyport.
var scheme, ownKinds = runtime.NewScheme(), runtime.NewScheme()

func init() {
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(ownKinds))
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
}

// The kinds as the API server names them.
const machineKind, operationKind, policyKind = "VirtualMachine", "VirtualMachineOperation", "RegoPolicy"

// qps and burst suffice for the requests of one command.
const qps, burst = 50, 100

// cluster is the target of a command: an API server, with any kinds, and a namespace.
type cluster struct {
	client.WithWatch
	config    *rest.Config
	namespace string
}

// connect finds the cluster that the flags, the environment and the kubeconfig name.
func (p *plugin) connect() (*cluster, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "kubectl-sallyport")
	config.QPS, config.Burst = qps, burst
	config.WarningHandlerWithContext = warner{rest.NewWarningWriter(p.ErrOut, rest.WarningWriterOptions{Deduplicate: true})}
	mapper, err := p.flags.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("reading the API resources of the cluster: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &cluster{WithWatch: c, config: config, namespace: namespace}, nil
}

func (c *cluster) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.namespace, Name: name}
}
