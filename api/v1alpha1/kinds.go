package v1alpha1

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind declares a kind of this package for the scheme, the chart's webhooks and roles of people, the references and the plugin. Apart from
// this, a kind is declared only by its types and their markers, and what the manager may do with it by files/rights.yaml of the chart.
//
// +kubebuilder:object:generate=false
type Kind struct {
	// Name is the kind, such as VirtualMachine.
	Name string
	// ShortName is the short name of the resource in kubectl.
	ShortName string
	// Cluster says that the objects are cluster-scoped.
	Cluster bool
	// Object and List are the types.
	Object, List runtime.Object
	// Mutating and Validating are the operations for which the API server calls the webhooks, such as CREATE.
	Mutating, Validating []string
	// Scale says that the kind has the subresource scale: the webhooks cover it, too, and users have it with the kind.
	Scale bool
	// People says that the roles view and edit of a namespace include the objects.
	People bool
}

var written = []string{"CREATE", "UPDATE"}

// Kinds are the kinds of this package, in the order in which a reader meets them.
var Kinds = []Kind{
	{
		Name: "VirtualMachine", ShortName: "svm", Object: &VirtualMachine{}, List: &VirtualMachineList{},
		Mutating: written, Validating: written, People: true,
	},
	{
		Name: "VirtualMachineOperation", ShortName: "svmop", Object: &VirtualMachineOperation{}, List: &VirtualMachineOperationList{},
		Mutating: written, Validating: written, People: true,
	},
	{
		Name: "VirtualMachinePool", ShortName: "svmpool", Object: &VirtualMachinePool{}, List: &VirtualMachinePoolList{},
		Validating: written, Scale: true, People: true,
	},
	{
		Name: "VirtualDisk", ShortName: "svd", Object: &VirtualDisk{}, List: &VirtualDiskList{},
		Mutating: written, Validating: []string{"CREATE", "UPDATE", "DELETE"}, People: true,
	},
	{
		Name: "VMDiskImage", ShortName: "vmdi", Object: &VMDiskImage{}, List: &VMDiskImageList{},
		Mutating: written, Validating: []string{"CREATE", "UPDATE", "DELETE"}, People: true,
	},
	{
		Name: "VSphereTemplate", ShortName: "svst", Object: &VSphereTemplate{}, List: &VSphereTemplateList{},
		Mutating: written, Validating: []string{"CREATE", "UPDATE", "DELETE"}, People: true,
	},
	{
		Name: "VSphereServer", ShortName: "svsrv", Cluster: true, Object: &VSphereServer{}, List: &VSphereServerList{},
	},
	{
		Name: "RegoPolicy", ShortName: "rego", Cluster: true, Object: &RegoPolicy{}, List: &RegoPolicyList{},
		Validating: []string{"CREATE", "UPDATE", "DELETE"},
	},
}

// KindOf returns the kind of an object of this package. It panics for any other object.
func KindOf(object runtime.Object) *Kind {
	is := reflect.TypeOf(object)
	return &Kinds[slices.IndexFunc(Kinds, func(k Kind) bool { return reflect.TypeOf(k.Object) == is })]
}

// GroupKind is the kind with its group.
func (k *Kind) GroupKind() schema.GroupKind { return GroupVersion.WithKind(k.Name).GroupKind() }

// Resource is what the API server calls the objects of the kind, such as virtualmachines.
func (k *Kind) Resource() string {
	plural, _ := meta.UnsafeGuessKindToResource(GroupVersion.WithKind(k.Name))
	return plural.Resource
}
