package virtualmachine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// cloned makes the VirtualMachine one that is cloned in a vCenter, with two processors.
func cloned(vm *v1alpha1.VirtualMachine) {
	vm.Spec.CPU = new(int32(2))
	vm.Spec.Runtime = v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc"},
		Clone: &v1alpha1.VSphereClone{
			Template: v1alpha1.VSphereCloneSource{InventoryPath: "/dc/vm/t"}, Folder: "/dc/vm/a", ResourcePool: "/dc/host/c",
			Datastore: "/dc/datastore/d", Networks: []v1alpha1.InventoryPath{"/dc/network/n"},
		},
	}}
}

// limited has at most so many processors allocated to all machines together, as the policy servers-quota has.
func (f *fixture) limited(cpus int32) {
	f.vms.AdmitsSize = func(ctx context.Context, vm *v1alpha1.VirtualMachine) (v1alpha1.ConditionReason, string, error) {
		soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if release, err := f.vms.Locks.LockMoves(soon); err == nil {
			release()
			f.Error("another size can be judged at the same time")
		}
		var all v1alpha1.VirtualMachineList
		if err := f.api.List(ctx, &all, client.InNamespace(f.namespace)); err != nil {
			return "", "", err
		}
		used := *vm.Spec.CPU
		for _, other := range all.Items {
			if other.UID != vm.UID && other.Status.Allocated != nil {
				used += *other.Status.Allocated.CPU
			}
		}
		if used > cpus {
			return v1alpha1.ReasonQuotaExceeded, fmt.Sprintf("used %d", used), nil
		}
		return "", "", nil
	}
}

// Two machines that are resized at once, each of which the quota has room for, do not both get their size: neither by a power-on, nor
// while they are on.
func TestTwoResizesAtOnce(t *testing.T) {
	for name, running := range map[string]bool{"with a power-on": false, "while they are on": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			policy := v1alpha1.RunPolicyAlwaysOff
			if running {
				policy = v1alpha1.RunPolicyAlwaysOn
			}
			names := []string{machine, "web-2"}
			uids := []types.UID{f.machine(policy, cloned)}
			uids = append(uids, f.machine(policy, cloned, func(vm *v1alpha1.VirtualMachine) { vm.Name = "web-2" }))
			pass := func(name string) {
				_, err := f.vms.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: f.namespace, Name: name}})
				if err != nil {
					t.Log(err)
				}
			}
			vm := func(name string) *v1alpha1.VirtualMachine {
				of := &v1alpha1.VirtualMachine{}
				f.Must(f.api.Get(t.Context(), types.NamespacedName{Namespace: f.namespace, Name: name}, of))
				return of
			}
			rest := func() {
				for range 15 {
					for i, name := range names {
						pass(name)
						f.world.Advance(uids[i])
					}
				}
			}
			rest()
			for _, name := range names {
				if got := vm(name).Status.Allocated; got == nil || got.CPU == nil || *got.CPU != 2 {
					t.Fatalf("allocated to %s is %+v", name, got)
				}
			}
			f.offset += time.Minute
			f.limited(6) // each of them has room, and both have not
			for i, name := range names {
				of := vm(name)
				of.Spec.CPU, of.Spec.RunPolicy = new(int32(4)), v1alpha1.RunPolicyAlwaysOn
				f.Must(f.api.Update(t.Context(), of))
				if running {
					f.world.SetHotAdd(uids[i])
				}
			}
			var both sync.WaitGroup
			for _, name := range names {
				both.Go(func() { pass(name) })
			}
			both.Wait()
			rest()
			var cpus []int32
			refused := 0
			for i, name := range names {
				is, _ := f.world.Instance(uids[i])
				cpus = append(cpus, is.CPU)
				for _, c := range vm(name).Status.Conditions {
					if c.Type != "Ready" && c.Reason == "QuotaExceeded" || strings.Contains(c.Message, "used 8") {
						refused++
						break
					}
				}
			}
			if cpus[0]+cpus[1] != 6 || refused != 1 {
				t.Errorf("they have %v processors, and %d of them says why it was refused", cpus, refused)
			}
			f.limited(8)
			f.offset += time.Minute
			rest()
			for i, name := range names {
				c := meta.FindStatusCondition(vm(name).Status.Conditions, "RestartRequired")
				if is, _ := f.world.Instance(uids[i]); is.CPU != 4 || c == nil || c.Reason != "AsWanted" {
					t.Errorf("with more room %s has %d processors: %+v", name, is.CPU, c)
				}
			}
		})
	}
}
