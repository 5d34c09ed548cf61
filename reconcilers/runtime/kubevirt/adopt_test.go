package kubevirt_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// A machine that KubeVirt would start is meant to be on, although it has no instance when it is adopted.
func TestMeantOn(t *testing.T) {
	start := virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest}
	for what, tc := range map[string]struct {
		was, begun virtv1.VirtualMachineRunStrategy // begun is the strategy that KubeVirt has recorded
		running    *bool
		requests   []virtv1.VirtualMachineStateChangeRequest
		want       bool
	}{
		"Always":                             {was: virtv1.RunStrategyAlways, begun: virtv1.RunStrategyAlways, want: true},
		"running: true":                      {running: new(true), want: true},
		"running: false":                     {running: new(false)},
		"Halted":                             {was: virtv1.RunStrategyHalted},
		"Manual":                             {was: virtv1.RunStrategyManual},
		"Manual, about to start":             {was: virtv1.RunStrategyManual, requests: []virtv1.VirtualMachineStateChangeRequest{start}, want: true},
		"RerunOnFailure, just applied":       {was: virtv1.RunStrategyRerunOnFailure, want: true},
		"RerunOnFailure, shut down":          {was: virtv1.RunStrategyRerunOnFailure, begun: virtv1.RunStrategyRerunOnFailure},
		"RerunOnFailure, failed, started":    {was: virtv1.RunStrategyRerunOnFailure, begun: virtv1.RunStrategyRerunOnFailure, requests: []virtv1.VirtualMachineStateChangeRequest{start}, want: true},
		"Once, just applied":                 {was: virtv1.RunStrategyOnce, want: true},
		"Once, whose one instance has ended": {was: virtv1.RunStrategyOnce, begun: virtv1.RunStrategyOnce},
	} {
		t.Run(what, func(t *testing.T) {
			r, _ := newRuntime(t, newVM(func(vm *virtv1.VirtualMachine) {
				vm.Spec.RunStrategy, vm.Spec.Running = &tc.was, tc.running
				if tc.running != nil {
					vm.Spec.RunStrategy = nil
				}
				vm.Status.RunStrategy, vm.Status.StateChangeRequests = tc.begun, tc.requests
			}))
			if _, err := r.Ensure(t.Context(), adopted()); err != nil {
				t.Fatal(err)
			}
			seen, err := r.Observe(t.Context(), adopted())
			if err != nil || seen.MeantOn != tc.want || seen.Power != v1alpha1.PowerStopped {
				t.Errorf("got meant on %t, power %s, error %v", seen.MeantOn, seen.Power, err)
			}
		})
	}
}

// Another client may remove what Sallyport wrote on an adopted machine. The status knows what it was, but not what another one of its name was.
func TestMarksThatAreRemoved(t *testing.T) {
	for what, tc := range map[string]struct {
		strips func(*virtv1.VirtualMachine)
		of     func(*runtime.Machine)
		want   virtv1.VirtualMachineRunStrategy
	}{
		"all":                        {strips: func(vm *virtv1.VirtualMachine) { vm.Labels, vm.Annotations = nil, nil }, want: virtv1.RunStrategyAlways},
		"the annotations":            {strips: func(vm *virtv1.VirtualMachine) { vm.Annotations = nil }, want: virtv1.RunStrategyAlways},
		"all of another of its name": {strips: func(vm *virtv1.VirtualMachine) { vm.Labels, vm.Annotations = nil, nil }, of: func(m *runtime.Machine) { m.Former.UID = "another" }, want: virtv1.RunStrategyManual},
		"all, by one that changes it": {strips: func(vm *virtv1.VirtualMachine) {
			vm.Labels, vm.Annotations, vm.Spec.RunStrategy = nil, nil, new(virtv1.RunStrategyRerunOnFailure)
		}, want: virtv1.RunStrategyRerunOnFailure},
	} {
		t.Run(what, func(t *testing.T) {
			r, _ := newRuntime(t, newVM(func(*virtv1.VirtualMachine) {}), instance())
			m := adopted()
			if _, err := r.Ensure(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			seen, err := r.Observe(t.Context(), m)
			if err != nil || seen.Former == nil || *seen.Former != (v1alpha1.AdoptedVM{UID: "vm-uid", RunStrategy: "Always"}) {
				t.Fatalf("adopted as %+v, error %v", seen.Former, err)
			}
			m.InstanceID, m.Former = seen.InstanceID, seen.Former.DeepCopy()
			if tc.of != nil {
				tc.of(&m)
			}
			vm := readVM(t, r, "vm")
			tc.strips(vm)
			if err := r.Client.Update(t.Context(), vm); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Ensure(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if seen, err := r.Observe(t.Context(), m); err != nil || !seen.Adopted || seen.Former == nil || seen.Former.RunStrategy != string(tc.want) {
				t.Errorf("seen is %+v, error %v", seen, err)
			}
			if err := r.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if vm := readVM(t, r, "vm"); *vm.Spec.RunStrategy != tc.want || len(vm.Labels)+len(vm.Annotations) > 0 {
				t.Errorf("released with run strategy %s, labels %v, annotations %v", *vm.Spec.RunStrategy, vm.Labels, vm.Annotations)
			}
		})
	}
}

// A machine with the mark of another VirtualMachine says whose it is, or how to adopt it.
func TestMarkOfAnother(t *testing.T) {
	golden := func(instance string) *v1alpha1.VirtualMachine {
		return &v1alpha1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "golden", UID: "uid-golden"}, Status: v1alpha1.VirtualMachineStatus{InstanceID: instance},
		}
	}
	const unlabel = "To adopt it, remove the label: kubectl label virtualmachines.kubevirt.io vm -n ns sallyport.dev/virtual-machine-uid-"
	creates := func(id string) func(*runtime.Machine) {
		return func(m *runtime.Machine) {
			m.InstanceID, m.Spec.Runtime.KubeVirt = id, &v1alpha1.KubeVirtRuntime{Create: &v1alpha1.KubeVirtMachine{}}
			m.Name = "vm"
		}
	}
	for what, tc := range map[string]struct {
		owner *v1alpha1.VirtualMachine
		of    func(*runtime.Machine)
		want  []string
	}{
		"a copied mark":                  {owner: golden("golden"), want: []string{"has a copy of the label", "of VirtualMachine golden", unlabel}},
		"the mark of one that is gone":   {want: []string{"of a VirtualMachine that no longer exists", unlabel}},
		"that of its owner":              {owner: golden("vm"), want: []string{"belongs to VirtualMachine golden"}},
		"of one that has not adopted it": {owner: golden(""), want: []string{"belongs to VirtualMachine golden"}},
		"in the way of a creation":       {of: creates(""), want: []string{"was not created for VirtualMachine vm: delete it"}},
		"of one that was created":        {of: creates("vm"), want: []string{"put the label back: kubectl label virtualmachines.kubevirt.io vm -n ns --overwrite sallyport.dev/virtual-machine-uid=uid-web"}},
	} {
		t.Run(what, func(t *testing.T) {
			objects := []client.Object{newVM(func(vm *virtv1.VirtualMachine) { vm.Labels = map[string]string{kubevirt.LabelMachine: "uid-golden"} })}
			if tc.owner != nil {
				objects = append(objects, tc.owner)
			}
			r, _ := newRuntime(t, objects...)
			m := adopted()
			if tc.of != nil {
				tc.of(&m)
			}
			_, err := r.Ensure(t.Context(), m)
			if !runtime.IsOwnedByAnother(err) {
				t.Fatalf("got %v", err)
			}
			for _, text := range tc.want {
				if !strings.Contains(runtime.Message(err), text) {
					t.Errorf("%q is not in %q", text, runtime.Message(err))
				}
			}
		})
	}
}

// What KubeVirt does with a machine for others is in flight, and says how to end it. A forced stop waits only for a restore.
func TestVerbs(t *testing.T) {
	for what, tc := range map[string]struct {
		status func(*virtv1.VirtualMachineStatus)
		off    bool
		want   string // "" if nothing is in flight
		yields bool
	}{
		"a restore": {
			status: func(s *virtv1.VirtualMachineStatus) { s.RestoreInProgress = new("nightly") }, off: true,
			want: "the machine is being worked on by KubeVirt, which restores it with VirtualMachineRestore nightly (to end that: kubectl delete vmrestore nightly -n ns)",
		},
		"a snapshot": {
			status: func(s *virtv1.VirtualMachineStatus) { s.SnapshotInProgress = new("s-1") }, yields: true,
			want: "the machine is being worked on by KubeVirt, which takes VirtualMachineSnapshot s-1 of it (to end that: kubectl delete vmsnapshot s-1 -n ns)",
		},
		"a snapshot of one that is off": {
			status: func(s *virtv1.VirtualMachineStatus) { s.SnapshotInProgress = new("s-1") }, off: true,
			want: "the machine is being worked on by KubeVirt, which takes VirtualMachineSnapshot s-1 of it (to end that: kubectl delete vmsnapshot s-1 -n ns)",
		},
		"a memory dump": {
			status: dump(virtv1.MemoryDumpInProgress), yields: true,
			want: "the machine is being worked on by KubeVirt, which dumps its memory to PersistentVolumeClaim dump (to end that: virtctl memory-dump remove vm -n ns)",
		},
		"a memory dump that waits for the next start": {status: dump(virtv1.MemoryDumpAssociating), off: true},
		"a memory dump that is complete":              {status: dump(virtv1.MemoryDumpCompleted)},
		"a memory dump that failed":                   {status: dump(virtv1.MemoryDumpFailed)},
	} {
		t.Run(what, func(t *testing.T) {
			vm := newVM(func(vm *virtv1.VirtualMachine) {
				vm.Labels, vm.Spec.RunStrategy = map[string]string{kubevirt.LabelMachine: "uid-web"}, new(virtv1.RunStrategyManual)
				tc.status(&vm.Status)
			})
			objects := []client.Object{vm}
			if !tc.off {
				objects = append(objects, instance())
			}
			r, _ := newRuntime(t, objects...)
			m := adopted()
			seen, err := r.Observe(t.Context(), m)
			switch {
			case err != nil:
				t.Fatal(err)
			case seen.Quiet() != (tc.want == ""), !seen.Quiet() && (seen.Yields() != tc.yields || seen.Doing() != tc.want || seen.InFlight[0].Ours):
				t.Fatalf("in flight is %+v", seen.InFlight)
			case seen.Quiet():
				return
			}
			power := r.PowerOn
			if !tc.off {
				power = func(ctx context.Context, m runtime.Machine) error { return r.PowerOff(ctx, m, runtime.Graceful) }
			}
			for what, err := range map[string]error{"power": power(t.Context(), m), "release": r.Delete(t.Context(), m)} {
				if !runtime.IsInvalidState(err) || !strings.Contains(runtime.Message(err), tc.want) {
					t.Errorf("%s: got error %v", what, err)
				}
			}
			err = r.PowerOff(t.Context(), m, runtime.Forced)
			if stops := len(readVM(t, r, "vm").Status.StateChangeRequests) == 1; stops != tc.yields || runtime.IsInvalidState(err) == tc.yields {
				t.Errorf("a forced stop was requested: %t, error %v", stops, err)
			}
		})
	}
}

func dump(phase virtv1.MemoryDumpPhase) func(*virtv1.VirtualMachineStatus) {
	return func(s *virtv1.VirtualMachineStatus) {
		s.MemoryDumpRequest = &virtv1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: phase}
	}
}

// KubeVirt keeps the run strategy during a snapshot or a restore, so that the machine is adopted later.
func TestAdoptionDuringASnapshot(t *testing.T) {
	r, _ := newRuntime(t, newVM(func(vm *virtv1.VirtualMachine) { vm.Status.SnapshotInProgress = new("s-1") }))
	if _, err := r.Ensure(t.Context(), adopted()); !runtime.IsInvalidState(err) || !strings.Contains(runtime.Message(err), "VirtualMachineSnapshot s-1") {
		t.Errorf("got error %v", err)
	}
	if vm := readVM(t, r, "vm"); len(vm.Labels) > 0 || *vm.Spec.RunStrategy != virtv1.RunStrategyAlways {
		t.Errorf("it has labels %v and run strategy %s", vm.Labels, *vm.Spec.RunStrategy)
	}
}
