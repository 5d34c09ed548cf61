package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfigs with an auth-provider, such as oidc, as for kubectl
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Scheme knows the kinds that the plugin reads and writes.
var Scheme = runtime.NewScheme()

// OwnKinds knows the kinds of Sallyport.
var OwnKinds = runtime.NewScheme()

func init() {
	utilruntime.Must(v1alpha1.AddToScheme(Scheme))
	utilruntime.Must(v1alpha1.AddToScheme(OwnKinds))
	utilruntime.Must(clientgoscheme.AddToScheme(Scheme))
}

// The kinds as the API server names them.
const (
	MachineKind   = "VirtualMachine"
	OperationKind = "VirtualMachineOperation"
	PoolKind      = "VirtualMachinePool"
	PolicyKind    = "RegoPolicy"
	ImageKind     = "VMDiskImage"
	TemplateKind  = "VSphereTemplate"
	ServerKind    = "VSphereServer"
)

// FieldManager is the field manager of the plugin's writes.
const FieldManager = "kubectl-sallyport"

// qps and burst suffice for the requests of one command.
const qps, burst = 50, 100

// Cluster is the target of a command: an API server, with any kinds, and a namespace.
type Cluster struct {
	client.WithWatch
	Config    *rest.Config
	Namespace string
}

// Connect finds the cluster that the flags, the environment and the kubeconfig name.
func (p *Plugin) Connect() (*Cluster, error) {
	config, err := p.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	namespace, _, err := p.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "kubectl-sallyport")
	config.QPS, config.Burst = qps, burst
	config.WarningHandlerWithContext = warner{rest.NewWarningWriter(p.ErrOut, rest.WarningWriterOptions{Deduplicate: true})}
	mapper, err := p.Flags.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("reading the API resources of the cluster: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &Cluster{WithWatch: c, Config: config, Namespace: namespace}, nil
}

// Key returns the key of an object in the namespace of the command.
func (c *Cluster) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.Namespace, Name: name}
}

// Members reads the VirtualMachines with the pool's UID label that the pool controls.
func (c *Cluster) Members(ctx context.Context, pool *v1alpha1.VirtualMachinePool) ([]v1alpha1.VirtualMachine, error) {
	list := &v1alpha1.VirtualMachineList{}
	if err := c.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingLabels{v1alpha1.LabelPoolUID: string(pool.UID)}); err != nil {
		return nil, fmt.Errorf("reading the members of VirtualMachinePool %s: %w", pool.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(vm v1alpha1.VirtualMachine) bool { return !metav1.IsControlledBy(&vm, pool) }), nil
}

// Policies reads one policy, or all by name.
func (c *Cluster) Policies(ctx context.Context, name string, only ...client.ListOption) (*v1alpha1.RegoPolicyList, error) {
	list := &v1alpha1.RegoPolicyList{}
	if name == "" {
		if err := c.List(ctx, list, only...); err != nil {
			return nil, err
		}
	} else {
		list.Items = make([]v1alpha1.RegoPolicy, 1)
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &list.Items[0]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.RegoPolicy) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(PolicyKind))
	}
	return list, nil
}
