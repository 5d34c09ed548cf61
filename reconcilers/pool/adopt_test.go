package pool

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// restore replaces everything by what a backup tool restores of it: other objects of the same names, without owners and status. What is
// of the pool alone comes last if the pool does.
func (f *fixture) restore(poolLast bool) {
	f.Helper()
	pool := f.server.pool()
	all := []client.Object{pool}
	for _, vm := range f.server.members() {
		all = append(all, &vm)
	}
	for _, d := range f.server.disks() {
		if d.DeletionTimestamp.IsZero() {
			all = append(all, &d)
		}
	}
	for _, o := range all {
		o.SetFinalizers(nil)
		f.must(f.server.Update(f.Context(), o))
		f.must(f.server.Delete(f.Context(), o))
	}
	if poolLast {
		all = append(all[1:], pool)
	}
	for _, o := range all {
		fresh := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(), Annotations: o.GetAnnotations()}
		switch o := o.(type) {
		case *v1alpha1.VirtualMachinePool:
			o.ObjectMeta, o.Status = fresh, v1alpha1.VirtualMachinePoolStatus{}
		case *v1alpha1.VirtualMachine:
			o.ObjectMeta, o.Status = fresh, v1alpha1.VirtualMachineStatus{}
		case *v1alpha1.VirtualDisk:
			o.ObjectMeta, o.Status = fresh, v1alpha1.VirtualDiskStatus{}
		}
		f.must(f.server.Create(f.Context(), o))
	}
}

// A pool that is restored has the members that are restored with it, and not as many more: velero#2554.
func TestRestoredPoolTakesItsMembersIn(t *testing.T) {
	f := newFixture(t, 3, v1alpha1.ScaleDownExplicit, func(s *v1alpha1.VirtualMachinePoolSpec) {
		s.VirtualDiskTemplates = []v1alpha1.VirtualDiskTemplate{{Name: "data", Spec: v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi")}}}
		s.VirtualMachineTemplate.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "data"}}
	})
	f.named("web-1")
	f.scale(2)
	f.settle()
	if f.left() != "0 2" {
		t.Fatalf("left are %s", f.left())
	}
	f.restore(true)
	f.settle()
	pool := f.server.pool()
	var of []string
	for _, vm := range f.server.members() {
		if vm.Labels[v1alpha1.LabelPoolUID] != string(pool.UID) || !metav1.IsControlledBy(&vm, pool) {
			t.Errorf("%s is not a member: %+v", vm.Name, vm.ObjectMeta)
		}
		of = append(of, vm.Name)
	}
	for _, d := range f.server.disks() {
		if d.DeletionTimestamp.IsZero() && !metav1.IsControlledBy(&d, pool) {
			t.Errorf("VirtualDisk %s is not the pool's: %+v", d.Name, d.ObjectMeta)
		}
	}
	if got := strings.Join(of, " "); got != "web-0 web-2" || pool.Status.Replicas != 2 {
		t.Errorf("the members are %s, and the status says %d", got, pool.Status.Replicas)
	}
}

// Only what nobody has is taken in, and no more of it than is missing.
func TestWhoIsTakenIn(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*v1alpha1.VirtualMachine)
		taken  bool
	}{
		"of an earlier pool":      {func(*v1alpha1.VirtualMachine) {}, true},
		"somebody has it":         {func(vm *v1alpha1.VirtualMachine) { vm.OwnerReferences = []metav1.OwnerReference{theirs} }, false},
		"of a pool of other name": {func(vm *v1alpha1.VirtualMachine) { vm.Labels[v1alpha1.LabelPool] = "db" }, false},
		"set free on purpose": {func(vm *v1alpha1.VirtualMachine) {
			vm.Labels[v1alpha1.LabelPoolUID] = "uid-1" // the pool's
		}, false},
		"never a member":      {func(vm *v1alpha1.VirtualMachine) { delete(vm.Labels, v1alpha1.LabelPoolUID) }, false},
		"no number":           {func(vm *v1alpha1.VirtualMachine) { vm.Name = "web-x" }, false},
		"a number of its own": {func(vm *v1alpha1.VirtualMachine) { vm.Name = "web-17" }, true},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, 0, v1alpha1.ScaleDownExplicit)
			vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0", Labels: map[string]string{
				v1alpha1.LabelPool: name, v1alpha1.LabelPoolUID: "uid-of-before", v1alpha1.LabelTemplateHash: "x",
			}}}
			c.change(vm)
			f.must(f.server.Create(f.Context(), vm))
			f.scale(1)
			f.settle()
			now := &v1alpha1.VirtualMachine{}
			f.must(f.server.Get(f.Context(), client.ObjectKeyFromObject(vm), now))
			members := 0
			for _, vm := range f.server.members() {
				if metav1.IsControlledBy(&vm, f.server.pool()) {
					members++
				}
			}
			if taken := metav1.IsControlledBy(now, f.server.pool()); taken != c.taken || members != 1 {
				t.Errorf("taken in: %v, want %v; members: %d", taken, c.taken, members)
			}
		})
	}
}

var theirs = metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Other", Name: "x", UID: "x", Controller: new(true)}

// The pool names the members that only a user can help.
func TestStuckMembersAreNamed(t *testing.T) {
	f := newFixture(t, 14, v1alpha1.ScaleDownNewestFirst)
	f.change("web-1", phase(v1alpha1.VirtualMachineFailed))
	for slot := 2; slot < 14; slot++ {
		f.change(fmt.Sprintf("web-%d", slot), func(vm *v1alpha1.VirtualMachine) {
			vm.Status.Phase = v1alpha1.VirtualMachinePending
			vm.Status.Conditions = []metav1.Condition{v1alpha1.ConditionReady.Condition(metav1.ConditionFalse, v1alpha1.ReasonOwnedByAnother, 1, "held")}
		})
	}
	f.is(f.settle(), v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonInsufficientReadyReplicas,
		"1 of 14 members are ready; lost: web-1 (kubectl delete svm NAME -n team-a replaces one); held back: web-2, web-3, web-4, web-5, web-6, "+
			"web-7, web-8, web-9, web-10, web-11, 2 more (kubectl sallyport why svm NAME -n team-a)")
}
