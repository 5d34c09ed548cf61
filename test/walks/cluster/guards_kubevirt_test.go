package cluster

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The kinds of KubeVirt. No controller of it runs here.
var (
	vms      = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"}
	vmis     = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"}
	vmiSets  = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstanceReplicaSet"}
	vmPools  = schema.GroupVersionKind{Group: "pool.kubevirt.io", Version: "v1beta1", Kind: "VirtualMachinePool"}
	kubevirt = []schema.GroupVersionKind{vmiSets, vmPools, vmis, vms, {Group: "kubevirt.io", Version: "v1", Kind: "KubeVirt"}}
)

const (
	running   = "kubevirt-machines/MachineRunning"
	migrating = "kubevirt-machines/MigrationInProgress"
	snapshot  = "kubevirt-machines/SnapshotInProgress"
	halted    = "kubevirt-machines/ProtectedMachineHalted"
	members   = "kubevirt-pools/MembersProtected"
	exist     = "kubevirt-definitions/MachinesExist"
)

// definition returns the definition of a kind of KubeVirt, without its fields.
func definition(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind.Kind) + "s"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
}

// guest creates a machine or an instance of KubeVirt, and what KubeVirt writes into its status if it is guarded.
func (t *trial) guest(kind schema.GroupVersionKind, more, status string) {
	t.Helper()
	o := t.make(fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: web%s}, spec: {runStrategy: Always}}", kind.GroupVersion(), kind.Kind, more))
	if t.guarded && status != "" {
		t.Must(t.Client.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))))
	}
}

// crowd creates a pool or a replica set of two members. One is protected, if it is guarded.
func (t *trial) crowd(kind, member schema.GroupVersionKind) {
	t.Helper()
	pool := t.make(fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: kept}}}}",
		kind.GroupVersion(), kind.Kind))
	of := fmt.Sprintf("ownerReferences: [{apiVersion: %s, kind: %s, name: web, uid: %s, controller: true}]", kind.GroupVersion(), kind.Kind, pool.GetUID())
	t.guest(member, "-0, labels: {app: kept}, "+of, "")
	t.guest(member, "-1, labels: "+t.labels()+", "+of, "")
}

// kubevirtRows are about the objects of KubeVirt.
func kubevirtRows() []row {
	vm := func(status string) func(*trial) {
		return func(t *trial) { t.guest(vms, "", status) }
	}
	protected := func(t *trial) { t.guest(vms, ", labels: "+t.labels(), "") }
	on := func(t *trial) {
		vm("")(t)
		if t.guarded {
			t.guest(vmis, "", `{"phase":"Running"}`)
		}
	}
	pool := func(t *trial) { t.crowd(vmPools, vms) }
	set := func(t *trial) { t.crowd(vmiSets, vmis) }
	fewer := func(kind schema.GroupVersionKind) func(*trial) bool {
		return func(t *trial) bool { return t.replicas(kind) == 1 }
	}
	shrunk := func(way string, line string, more ...string) row {
		return row{"a VirtualMachinePool of KubeVirt with a protected member: " + way, pool, runs(line, more...), members, passes, passes, fewer(vmPools)}
	}
	const manyPools = "virtualmachinepools.pool.kubevirt.io"
	return []row{
		deleted("a VirtualMachine of KubeVirt: `kubectl delete`", protected, runs("delete virtualmachines.kubevirt.io web --wait=false"), gone(vms, "web")),
		{"one that runs: `kubectl delete`", on, runs("delete virtualmachines.kubevirt.io web --wait=false"), running, passes, passes, gone(vms, "web")},
		{"its instance, while it is migrated: `kubectl delete`", func(t *trial) {
			t.guest(vmis, "", `{"phase":"Running","migrationState":{"sourceNode":"a","targetNode":"b"}}`)
		}, runs("delete virtualmachineinstances.kubevirt.io web --wait=false"), migrating, passes, passes, gone(vmis, "web")},
		{"a stop during a snapshot, as virt-api writes it for `virtctl`", vm(`{"snapshotInProgress":"nightly"}`),
			runs("patch virtualmachines.kubevirt.io web --subresource=status --type=merge -p", `{"status":{"stateChangeRequests":[{"action":"Stop"}]}}`),
			snapshot, passes, passes, func(t *trial) bool {
				requests, _, _ := unstructured.NestedSlice(t.get(vms, "web").Object, "status", "stateChangeRequests")
				return len(requests) == 1
			}},
		{"a protected one: `runStrategy: Halted`", protected, runs("patch virtualmachines.kubevirt.io web --type=merge -p", `{"spec":{"runStrategy":"Halted"}}`),
			halted, passes, passes, func(t *trial) bool {
				strategy, _, _ := unstructured.NestedString(t.get(vms, "web").Object, "spec", "runStrategy")
				return strategy == "Halted"
			}},
		shrunk("`kubectl scale`", "scale "+manyPools+"/web --replicas=1"),
		shrunk("`kubectl patch`", "patch "+manyPools+" web --type=merge -p", one),
		shrunk("`kubectl edit`", "edit "+manyPools+" web"),
		let("so, by a patch after which its members are removed by name", pool, runs("patch "+manyPools+" web --type=merge -p",
			`{"spec":{"replicas":1,"scaleInStrategy":{"opportunistic":{}}}}`), fewer(vmPools)),
		{"a VirtualMachineInstanceReplicaSet with a protected member: `kubectl scale`", set,
			runs("scale virtualmachineinstancereplicasets.kubevirt.io/web --replicas=1"), members, passes, passes, fewer(vmiSets)},
		{"a definition of KubeVirt's, while there is a machine, `--dry-run=server`", vm(""), func(t *trial) (string, bool) {
			return t.try(member, "", "delete crd virtualmachinepools.pool.kubevirt.io --dry-run=server")
		}, exist, exist, passes, nil},
	}
}

// forgotten has KubeVirt's status say that nothing goes on.
func (t *trial) forgotten(o *unstructured.Unstructured) {
	t.Helper()
	if o.GroupVersionKind().Group == vms.Group {
		t.Must(client.IgnoreNotFound(t.Client.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":null}`)))))
	}
}

// policiesOfKubeVirt are opt-in.
var policiesOfKubeVirt = []string{"kubevirt-machines", "kubevirt-pools", "kubevirt-definitions"}
