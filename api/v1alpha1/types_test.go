package v1alpha1_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestOperationActiveDeadline(t *testing.T) {
	ninety := int32(90)
	tests := map[string]struct {
		spec v1alpha1.VirtualMachineOperationSpec
		want time.Duration
	}{
		"a stop has ten minutes":               {v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop}, 10 * time.Minute},
		"a migration has an hour":              {v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationMigrate}, time.Hour},
		"an eviction has an hour":              {v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationEvict}, time.Hour},
		"a deadline of its own goes before it": {v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationEvict, ActiveDeadlineSeconds: &ninety}, 90 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			operation := v1alpha1.VirtualMachineOperation{Spec: test.spec}
			if got := operation.ActiveDeadline(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestOperationFinished(t *testing.T) {
	tests := map[v1alpha1.OperationPhase]bool{
		"":                               false,
		v1alpha1.OperationPending:        false,
		v1alpha1.OperationInProgress:     false,
		v1alpha1.OperationCompleted:      true,
		v1alpha1.OperationFailed:         true,
		v1alpha1.OperationPhase("Other"): false,
	}
	for phase, want := range tests {
		operation := v1alpha1.VirtualMachineOperation{Status: v1alpha1.VirtualMachineOperationStatus{Phase: phase}}
		if got := operation.Finished(); got != want {
			t.Errorf("phase %q: got %t, want %t", phase, got, want)
		}
	}
}

func TestVirtualMachineBusy(t *testing.T) {
	tests := map[string]struct {
		status v1alpha1.VirtualMachineStatus
		want   bool
	}{
		"an idle machine":                {v1alpha1.VirtualMachineStatus{}, false},
		"a claimed machine":              {v1alpha1.VirtualMachineStatus{ActiveOperation: &v1alpha1.ActiveOperation{}}, true},
		"something that is being undone": {v1alpha1.VirtualMachineStatus{Undoing: []v1alpha1.UndoingOperation{{}}}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			machine := v1alpha1.VirtualMachine{Status: test.status}
			if got := machine.Busy(); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestConditionCarriesWhatItIsGiven(t *testing.T) {
	got := v1alpha1.ConditionReady.Condition(metav1.ConditionFalse, v1alpha1.ReasonProvisioning, 3, "cloning")
	want := metav1.Condition{Type: "Ready", Status: "False", Reason: "Provisioning", ObservedGeneration: 3, Message: "cloning"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
