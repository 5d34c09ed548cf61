package soak

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/step"
)

// hostile is the namespace of somebody who may edit it, and does what costs others most.
type hostile struct {
	step.T
	client.Client
	ctx  context.Context
	all  sync.WaitGroup
	done [9]atomic.Int64 // how often each
}

const (
	// parallel is how many requests with live facts are under way at once, and standing how many machines the hostile namespace has.
	parallel, standing = 90, 240
	// largest is how long an annotation can be that the API server takes, and admitted how long in a machine that is admitted.
	largest, admitted = 250 << 10, 60 << 10
	// owners is how many owners one update gives an object.
	owners = 350
)

// hungServer is the address of a vCenter that takes connections and never answers.
func hungServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "https://" + l.Addr().String()
}

// machine is one on the vCenter that hangs.
func (h *hostile) machine(name string) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: name}}
	vm.Spec.RunPolicy = v1alpha1.RunPolicyAlwaysOn
	vm.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "hostile"}, InventoryPath: "/DC0/vm/" + name,
	}
	return vm
}

func (h *hostile) operation(name string, of v1alpha1.OperationType, machine string) *v1alpha1.VirtualMachineOperation {
	return &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: name},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: of, VirtualMachineName: machine},
	}
}

// fill makes what stays: machines on a vCenter that hangs, some as large as they can be, operations that cannot go on, pools.
func (h *hostile) fill(machines int) {
	h.Helper()
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < machines; i += 8 {
				vm := h.machine(fmt.Sprint("hung-", i))
				if i%10 == 0 {
					vm.Annotations = map[string]string{"large": strings.Repeat("x", admitted)}
				}
				h.made(h.Create(h.ctx, vm))
				if i%4 == 0 {
					o := h.operation(vm.Name, v1alpha1.OperationRestart, vm.Name)
					o.Spec.Force = true
					h.made(h.Create(h.ctx, o))
				}
			}
		})
	}
	group.Wait()
	pool := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "pool"}}
	pool.Spec.Replicas, pool.Spec.ScaleDownPolicy = ptr.To(int32(machines/4)), v1alpha1.ScaleDownNewestFirst
	pool.Spec.VirtualMachineTemplate.Spec = h.machine("x").Spec
	pool.Spec.VirtualMachineTemplate.Spec.CPU, pool.Spec.VirtualMachineTemplate.Spec.Memory = ptr.To(int32(1)), ptr.To(resource.MustParse("1Gi"))
	pool.Spec.VirtualMachineTemplate.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "hostile"},
		Clone: &v1alpha1.VSphereClone{
			Template: v1alpha1.VSphereCloneSource{InventoryPath: "/DC0/vm/template"}, Folder: "/DC0/vm",
			ResourcePool: "/DC0/host/DC0_C0/Resources", Datastore: "/DC0/datastore/LocalDS_0",
			Networks: []v1alpha1.InventoryPath{"/DC0/network/VM Network"},
		},
	}
	h.made(h.Create(h.ctx, pool))
	h.made(h.Create(h.ctx, deploymentOf("hostile")))
}

// made fails the test if something was refused that is in order.
func (h *hostile) made(err error) {
	h.Helper()
	if err != nil {
		h.Error(err)
	}
}

// again does something over and over, in so many goroutines, until the end. What becomes of it is not looked at.
func (h *hostile) again(which, goroutines int, do func(n int)) {
	for i := range goroutines {
		h.all.Go(func() {
			for n := i; h.ctx.Err() == nil; n += goroutines {
				do(n)
				h.done[which].Add(1)
			}
		})
	}
}

// attacks are what is done over and over, by name.
var attacks = []string{
	"scale-downs as dry runs", "changes of specs", "operations that come and go", "updates with many owners", "objects as large as they can be",
	"copies of finished operations", "names as long as they can be", "values that decoders choke on", "managed fields that no list holds",
}

// attack begins, and goes on until the context ends.
func (h *hostile) attack(machines int) {
	h.again(0, parallel, func(int) { _ = scaleDown(h.ctx, h, "hostile") })
	h.again(1, 1, func(n int) {
		patch := fmt.Sprintf(`{"spec": {"terminationGracePeriodSeconds": %d}}`, 10+rand.IntN(100)) //nolint:gosec // anything does
		_ = h.Patch(h.ctx, h.machine(fmt.Sprint("hung-", n%machines)), client.RawPatch(types.MergePatchType, []byte(patch)))
	})
	h.again(2, 1, func(n int) {
		o := h.operation(fmt.Sprint("comes-", n), v1alpha1.OperationRestart, fmt.Sprint("hung-", n%machines))
		_ = h.Create(h.ctx, o)
		_ = h.Delete(h.ctx, o)
	})
	protected := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "owned"}}
	protected.Labels = map[string]string{"sallyport.dev/deletion-protection": "enabled"}
	h.made(h.Create(h.ctx, protected.DeepCopy()))
	h.again(3, 1, func(n int) {
		owned := protected.DeepCopy()
		for i := range owners {
			owned.OwnerReferences = append(owned.OwnerReferences, metav1.OwnerReference{
				APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("owner-%d-%d", n, i), UID: types.UID(fmt.Sprintf("%d-%d", n, i)),
			})
		}
		_ = h.Update(h.ctx, owned, client.DryRunAll)
	})
	h.again(4, 1, func(n int) {
		vm := h.machine(fmt.Sprint("large-", n))
		vm.Annotations = map[string]string{"large": strings.Repeat("x", largest)}
		_ = h.Create(h.ctx, vm, client.DryRunAll)
	})
	h.again(5, 1, func(n int) {
		o := h.operation(fmt.Sprint("restored-", n), v1alpha1.OperationStop, fmt.Sprint("hung-", n%machines))
		o.Spec.VirtualMachineUID, o.Spec.RequestedAt = "00000000-0000-0000-0000-000000000000", "2020-01-01T00:00:00.000000000Z"
		_ = h.Create(h.ctx, o, client.DryRunAll)
	})
	h.again(6, 1, func(n int) {
		_ = h.Create(h.ctx, h.machine(strings.Repeat("x", 240)+fmt.Sprint(n%1000)), client.DryRunAll)
	})
	h.again(7, 1, h.poison)
}

// quantities are those that a schema once admitted and Go does not decode (controller-runtime#1032, argo-workflows#3677), or not in
// bounded time, or too late for the rules of the schema.
var quantities = []string{"1e1.5", "1e.5", "1e99999999999999999999", "1e-2000000000", strings.Repeat("9", 100_000)}

// nesting is how deep managed fields can be that one object can hold, and no list.
const nesting = 9_980

// nests are such managed fields.
var nests = fmt.Sprintf(`{"metadata": {"managedFields": [{"manager": "x", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
"fieldsType": "FieldsV1", "fieldsV1": %s{}%s}]}}`, strings.Repeat(`{"f:x": `, nesting), strings.Repeat("}", nesting))

// merging is how many bytes the API server needs for such a patch of any object of any kind, before it asks anybody: its merge copies
// what is left of the patch at each level.
var merging = float64(len(nests)) * nesting / 2

// nest sends them once, because it takes the API server some ten seconds.
func (h *hostile) nest() {
	h.all.Go(func() {
		_ = h.Patch(h.ctx, h.machine("hung-1"), client.RawPatch(types.MergePatchType, []byte(nests)))
		h.done[8].Add(1)
	})
}

// poison has the API server take what others could not decode.
func (h *hostile) poison(n int) {
	size := quantities[n%len(quantities)]
	vsphere := func(disk string) map[string]any {
		return map[string]any{"serverRef": map[string]any{"name": "hostile"}, "clone": map[string]any{
			"template": map[string]any{"inventoryPath": "/DC0/vm/template"}, "folder": "/DC0/vm", "resourcePool": "/DC0/host/DC0_C0/Resources",
			"datastore": "/DC0/datastore/LocalDS_0", "networks": []any{"/DC0/network/VM Network"}, "disks": []any{map[string]any{"size": disk}},
		}}
	}
	machine := func(memory, disk string) map[string]any {
		return map[string]any{"cpu": int64(1), "memory": memory, "runtime": map[string]any{"vsphere": vsphere(disk)}}
	}
	for kind, spec := range map[string]map[string]any{
		"VirtualMachine":     machine("1Gi", size),
		"VirtualMachinePool": {"replicas": int64(0), "scaleDownPolicy": "NewestFirst", "virtualMachineTemplate": map[string]any{"spec": machine("1Gi", size)}},
		"VirtualDisk": {"size": size, "runtime": map[string]any{"vsphere": map[string]any{
			"serverRef": map[string]any{"name": "hostile"}, "folder": "/disks", "datastore": "/DC0/datastore/LocalDS_0",
		}}},
	} {
		o := object(kind, spec)
		o.SetNamespace("hostile")
		o.SetName(fmt.Sprint("poison-", n))
		_ = h.Create(h.ctx, o)
		if kind == "VirtualMachine" {
			o = object(kind, machine(size, "1Gi"))
			o.SetNamespace("hostile")
			o.SetName(fmt.Sprint("poison-memory-", n))
			_ = h.Create(h.ctx, o)
		}
	}
}

// deploymentOf is one with five replicas.
func deploymentOf(namespace string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	labels := map[string]string{"app": "web"}
	d.Spec.Replicas, d.Spec.Selector, d.Spec.Template.Labels = ptr.To(int32(5)), &metav1.LabelSelector{MatchLabels: labels}, labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	return d
}

// scaleDown is a dry run that scaling-guard reads the Deployment live for.
func scaleDown(ctx context.Context, c client.Client, namespace string) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 2}}`))
	return c.SubResource("scale").Patch(ctx, deploymentOf(namespace), patch, client.DryRunAll)
}

// Whatever somebody does who may edit one namespace, those who work in another one are served as before.
func TestAHostileNamespaceBesideAnOrdinaryOne(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	s := newStreet(t)
	alone := s.ordinary.rounds(5)
	ctx, end := context.WithCancel(t.Context())
	h := &hostile{T: s.T, Client: s.client("mallory", "hostile"), ctx: ctx}
	stop := s.watchMemory(t)
	h.fill(standing)
	filled := stop()
	stop = s.watchMemory(t)
	h.attack(standing)
	beside := s.ordinary.rounds(2)
	attacked := stop()
	stop = s.watchMemory(t)
	h.nest()
	for what, took := range s.ordinary.rounds(1) {
		beside[what] = append(beside[what], took...)
	}
	end()
	h.all.Wait()
	nested := stop()
	s.compare(alone, beside)
	s.compareMemory("what stays", filled, math.Inf(1))
	s.compareMemory("what is done over and over", attacked, greedier*filled.apiServer)
	s.compareMemory("fields that no list holds", nested, greedier*(filled.apiServer+merging))
	for i, what := range attacks {
		if t.Logf("%s: %d", what, h.done[i].Load()); h.done[i].Load() == 0 {
			t.Errorf("there were no %s", what)
		}
	}
}
