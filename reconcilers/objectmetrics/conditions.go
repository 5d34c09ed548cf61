package objectmetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

var conditionsFamily = NewFamily("sallyport_conditions",
	"Number of objects of a kind, by runtime, and by type, status and reason of each of their conditions. Reason None: not reconciled yet; other: not one of the API, such as a policy's.",
	"Since when the condition of the oldest of these objects has its status", "kind", "runtime", "type", "status", "reason")

const unreconciled, other = "None", "other"

// Conditions collects the conditions of the objects of Sallyport's kinds, except those of VirtualMachineOperations, most of which have
// finished. Labels have values of the API only.
type Conditions struct {
	// Cache contains the objects.
	Cache client.Reader
	// Elected is closed when this replica leads. Other replicas report nothing.
	Elected <-chan struct{}
	// RuntimeOf returns the name of the runtime of a machine or a disk, "" for other objects.
	RuntimeOf func(runtime.Object) string
}

// Describe sends the descriptions of the metrics.
func (c *Conditions) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range conditionsFamily.Descs() {
		descs <- desc
	}
}

// Collect reads the objects from the cache.
func (c *Conditions) Collect(metrics chan<- prometheus.Metric) {
	groups := Groups{}
	for i := range v1alpha1.Kinds {
		kind := &v1alpha1.Kinds[i]
		list := kind.List.DeepCopyObject().(client.ObjectList)
		if kind.Name == "VirtualMachineOperation" || !read(c.Cache, c.Elected, list) {
			continue
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			c.add(groups, kind.Name, o.(client.Object))
			return nil
		})
	}
	groups.Report(conditionsFamily, to(metrics))
}

func (c *Conditions) add(groups Groups, kind string, o client.Object) {
	of, conditions := c.RuntimeOf(o), conditionsOf(o)
	if v1alpha1.ConditionReady.In(conditions) == nil {
		groups.Add(o.GetCreationTimestamp().Time, kind, of, string(v1alpha1.ConditionReady), string(metav1.ConditionUnknown), unreconciled)
	}
	for i := range conditions {
		is := &conditions[i]
		if !v1alpha1.ConditionType(is.Type).Known() {
			continue
		}
		reason := is.Reason
		if !v1alpha1.ConditionReason(reason).Known() {
			reason = other
		}
		groups.Add(is.LastTransitionTime.Time, kind, of, is.Type, string(is.Status), reason)
	}
}

func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *v1alpha1.VirtualMachine:
		return o.Status.Conditions
	case *v1alpha1.VirtualMachinePool:
		return o.Status.Conditions
	case *v1alpha1.VirtualDisk:
		return o.Status.Conditions
	case *v1alpha1.VMDiskImage:
		return o.Status.Conditions
	case *v1alpha1.VSphereTemplate:
		return o.Status.Conditions
	case *v1alpha1.VSphereServer:
		return o.Status.Conditions
	case *v1alpha1.RegoPolicy:
		return o.Status.Conditions
	}
	return nil
}
