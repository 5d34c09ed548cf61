//go:build kubevirt

package kubevirt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// TestAdoption has the shipped program adopt machines as others leave them, and wait for what KubeVirt does with machines.
func TestAdoption(t *testing.T) {
	s := newSite(t)
	s.release(nil)
	for name, f := range map[string]func(*site, string){
		"between two instances": (*site).betweenInstances, "marks removed": (*site).marksRemoved, "a clone": (*site).cloneAdopted, "a restore": (*site).duringRestore,
		"observed, adopted and given back": (*site).observedFirst,
	} {
		t.Run(name, func(t *testing.T) { in := s.in(t); f(in, in.namespace()) })
	}
}

// theirVM returns the KubeVirt VirtualMachine of that name.
func (s *site) theirVM(namespace, name string) *virtv1.VirtualMachine {
	s.Helper()
	vm := &virtv1.VirtualMachine{}
	s.Must(s.Get(s.Context(), types.NamespacedName{Namespace: namespace, Name: name}, vm))
	return vm
}

// adopting returns a spec that adopts the machine of the same name.
func adopting() *v1alpha1.VirtualMachineSpec {
	return &v1alpha1.VirtualMachineSpec{
		RunPolicy: v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{}},
	}
}

// betweenInstances adopts machines before KubeVirt has started them: what was to be on is started.
func (s *site) betweenInstances(namespace string) {
	machines := map[string]virtv1.VirtualMachineRunStrategy{
		"always": virtv1.RunStrategyAlways, "rerun": virtv1.RunStrategyRerunOnFailure, "halted": virtv1.RunStrategyHalted, "manual": virtv1.RunStrategyManual,
	}
	for name, strategy := range machines {
		s.virtualMachine(namespace, name, adopting()) // it waits, and adopts the machine at once
		theirs := foreignVM(namespace, name)
		theirs.Spec.RunStrategy = &strategy
		s.Must(s.Create(s.Context(), theirs))
	}
	for name, strategy := range machines {
		vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		want := v1alpha1.VirtualMachineStopped
		if strategy == virtv1.RunStrategyAlways || strategy == virtv1.RunStrategyRerunOnFailure {
			want = v1alpha1.VirtualMachineRunning
		}
		s.shows(vm, want)
		if of := vm.Status.Adopted; of == nil || of.RunStrategy != string(strategy) || of.UID != s.theirVM(namespace, name).UID {
			s.Errorf("%s: the status says that %+v was adopted", name, of)
		}
	}
}

// marksRemoved has another client remove what Sallyport wrote on a machine. It is adopted again, and gets its former run strategy back.
func (s *site) marksRemoved(namespace string) {
	theirs := foreignVM(namespace, "db")
	theirs.Spec.RunStrategy = new(virtv1.RunStrategyAlways)
	s.Must(s.Create(s.Context(), theirs))
	vm := s.virtualMachine(namespace, "db", adopting())
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	s.Eventually("the marks are removed", func() bool {
		now := s.theirVM(namespace, "db")
		now.Labels, now.Annotations = nil, nil
		return s.Update(s.Context(), now) == nil
	})
	s.Eventually("the machine is adopted again", func() bool { return s.theirVM(namespace, "db").Labels[kubevirt.LabelMachine] == string(vm.UID) })
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	if now := s.theirVM(namespace, "db"); *now.Spec.RunStrategy != virtv1.RunStrategyAlways || now.Labels[kubevirt.LabelMachine] != "" {
		s.Errorf("released with run strategy %s, labels %v", *now.Spec.RunStrategy, now.Labels)
	}
}

// observedFirst shows a machine that nothing is written to, adopts it, and gives it back: it has run all the time, and is as it was.
func (s *site) observedFirst(namespace string) {
	theirs := foreignVM(namespace, "erp")
	theirs.Spec.RunStrategy = new(virtv1.RunStrategyAlways)
	s.Must(s.Create(s.Context(), theirs))
	observing := adopting()
	observing.RunPolicy = v1alpha1.RunPolicyObserve
	vm := s.virtualMachine(namespace, "erp", observing)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	instance := s.instance(types.NamespacedName{Namespace: namespace, Name: "erp"}).UID
	asItWas := func() string {
		now := s.theirVM(namespace, "erp")
		return fmt.Sprintln(*now.Spec.RunStrategy, now.Labels, now.Finalizers, slices.Sorted(maps.Keys(now.Annotations)))
	}
	before := asItWas()
	for _, entry := range s.theirVM(namespace, "erp").ManagedFields {
		if strings.Contains(entry.Manager, "sallyport") {
			s.Errorf("Sallyport has written %s", entry.FieldsV1)
		}
	}
	become := func(policy v1alpha1.RunPolicy) {
		patch := fmt.Appendf(nil, `{"spec":{"runPolicy":%q}}`, policy)
		s.Must(s.Patch(s.Context(), vm, client.RawPatch(types.MergePatchType, patch)))
	}
	become(v1alpha1.RunPolicyManual)
	s.Eventually("the machine is adopted", func() bool {
		now := s.theirVM(namespace, "erp")
		return now.Labels[kubevirt.LabelMachine] == string(vm.UID) && *now.Spec.RunStrategy == virtv1.RunStrategyManual
	})
	become(v1alpha1.RunPolicyObserve)
	s.Eventually("it is given back: "+before, func() bool { return asItWas() == before })
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	if now := s.instance(types.NamespacedName{Namespace: namespace, Name: "erp"}).UID; now != instance {
		s.Errorf("the machine was started again: its instance is %s, and was %s", now, instance)
	}
}

// cloneAdopted adopts a copy of an adopted machine, with its labels and annotations, once the label is removed as the condition says.
func (s *site) cloneAdopted(namespace string) {
	s.Must(s.Create(s.Context(), foreignVM(namespace, "golden")))
	s.shows(s.virtualMachine(namespace, "golden", adopting()), v1alpha1.VirtualMachineStopped)
	of, clone := s.theirVM(namespace, "golden"), foreignVM(namespace, "copy")
	clone.Labels, clone.Annotations = of.Labels, of.Annotations
	s.Must(s.Create(s.Context(), clone))
	vm := s.virtualMachine(namespace, "copy", adopting())
	s.Until("condition Ready says which label to remove", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		ready := v1alpha1.ConditionReady.In(vm.Status.Conditions)
		return fmt.Sprintf("%+v", vm.Status), ready != nil && ready.Reason == string(v1alpha1.ReasonOwnedByAnother) &&
			strings.Contains(ready.Message, "of VirtualMachine golden, as a clone has") &&
			strings.Contains(ready.Message, "kubectl label virtualmachines.kubevirt.io copy -n "+namespace+" "+kubevirt.LabelMachine+"-")
	})
	s.Eventually("the label is removed", func() bool {
		now := s.theirVM(namespace, "copy")
		delete(now.Labels, kubevirt.LabelMachine)
		return s.Update(s.Context(), now) == nil
	})
	s.Until("the clone is adopted", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.InstanceID == "copy" && vm.Status.Phase == v1alpha1.VirtualMachineStopped
	})
}

// duringRestore has KubeVirt restore a machine, as its restore controller marks it: a start waits until that has ended.
func (s *site) duringRestore(namespace string) {
	spec := machine(namespace, "web", true).Spec
	spec.RunPolicy = v1alpha1.RunPolicyManual
	vm := s.virtualMachine(namespace, "web", spec)
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	restores := func(name *string) {
		s.Eventually("KubeVirt has changed the status", func() bool {
			now := s.theirVM(namespace, "web")
			now.Status.RestoreInProgress = name
			return s.Status().Update(s.Context(), now) == nil
		})
	}
	restores(new("nightly"))
	op := &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "start"},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStart, VirtualMachineName: "web"},
	}
	s.Must(s.Create(s.Context(), op))
	s.Until("the start waits for the restore", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
		done := v1alpha1.ConditionCompleted.In(op.Status.Conditions)
		return fmt.Sprintf("%+v", op.Status), done != nil && strings.Contains(done.Message, "kubectl delete vmrestore nightly -n "+namespace)
	})
	if now := s.theirVM(namespace, "web"); len(now.Status.StateChangeRequests) > 0 || s.Agent.Boots(client.ObjectKeyFromObject(vm)) > 0 {
		s.Errorf("the machine is started during the restore: %+v", now.Status)
	}
	restores(nil)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	s.Eventually("the start has succeeded", func() bool {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
		return op.Status.Phase == v1alpha1.OperationCompleted
	})
}
