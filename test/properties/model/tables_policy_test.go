package model

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/record"
)

// nothingElse is asked for no fact but which machines are being moved: all else that the policies want to know is in the pass.
type nothingElse struct{}

func (n nothingElse) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return n }

func (nothingElse) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	if q.Fields["status.phase"] == string(v1alpha1.VirtualMachineMigrating) {
		return engine.Answer{Value: engine.List(nil), Live: true}, nil
	}
	return engine.Answer{}, errors.New("asked beyond the pass")
}

var (
	allRunPolicies = []v1alpha1.RunPolicy{
		v1alpha1.RunPolicyAlwaysOn, v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, v1alpha1.RunPolicyManual, v1alpha1.RunPolicyAlwaysOff,
	}
	allPhases = []v1alpha1.VirtualMachinePhase{
		"", v1alpha1.VirtualMachinePending, v1alpha1.VirtualMachineWaitingForImage, v1alpha1.VirtualMachineProvisioning,
		v1alpha1.VirtualMachineStopped, v1alpha1.VirtualMachineStarting, v1alpha1.VirtualMachineRunning, v1alpha1.VirtualMachineDegraded,
		v1alpha1.VirtualMachineStopping,
		v1alpha1.VirtualMachineMigrating, v1alpha1.VirtualMachinePaused, v1alpha1.VirtualMachineFailed,
	}
)

// allSteps are those of a move by hibernation.
var allSteps = []v1alpha1.MigrationStep{
	v1alpha1.MigrationHibernate, v1alpha1.MigrationWake, v1alpha1.MigrationRelease, v1alpha1.MigrationRestore, v1alpha1.MigrationDiscard,
}

// everyOperation gives each form in which operations can be requested.
func everyOperation() []v1alpha1.VirtualMachineOperation {
	var all []v1alpha1.VirtualMachineOperation
	for _, form := range v1alpha1.OperationForms() {
		name := keyOf(form.Type, form.Force)
		all = append(all, v1alpha1.VirtualMachineOperation{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
			Spec: v1alpha1.VirtualMachineOperationSpec{
				Type: form.Type, Force: form.Force, VirtualMachineName: "vm-0", RequestedBy: &v1alpha1.Requester{Username: "ann"},
				RequestedAt: "2026-11-20T09:59:00.000000001Z",
			},
		})
	}
	return all
}

// The tables of the model say what the shipped policies say: of each operation over each other, over each other holder, and of
// each operation with each run policy in each phase.
func TestTablesAreThoseOfThePolicies(t *testing.T) {
	judge, err := shippedTables()
	if err != nil {
		t.Fatal(err)
	}
	shipped := shipped.Policies(t)
	set, err := catalog.Compile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	gate := decision.NewDecider(set, nothingElse{}, record.NewRecorder(prometheus.NewRegistry(), io.Discard, false), time.Now)
	compare := func(o *v1alpha1.VirtualMachineOperation, vm *v1alpha1.VirtualMachine, unfinished ...v1alpha1.VirtualMachineOperation) {
		t.Helper()
		ours, _ := judge.Arbitrate(t.Context(), o, vm, unfinished)
		theirs, err := gate.Arbitrate(t.Context(), o, vm, unfinished)
		if err != nil {
			t.Fatal(err)
		}
		want := operation.Admission(theirs)
		ours.Message, want.Message = "", ""
		slices.Sort(want.Supersedes)
		if want.Denied { // of several reasons any is good
			ours, want = operation.Admission{Denied: ours.Denied}, operation.Admission{Denied: true}
		}
		if diff := cmp.Diff(want, ours); diff != "" {
			t.Errorf("%s of %+v, %d unfinished (-policies +tables):\n%s", o.Name, vm, len(unfinished), diff)
		}
	}
	machine := func(p v1alpha1.RunPolicy, phase v1alpha1.VirtualMachinePhase) *v1alpha1.VirtualMachine {
		vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vm-0", UID: "uid"}}
		vm.Spec.RunPolicy, vm.Status.Phase = p, phase
		return vm
	}
	for _, o := range everyOperation() {
		compare(&o, nil)
		for _, p := range allRunPolicies {
			for _, phase := range allPhases {
				compare(&o, machine(p, phase))
			}
		}
		for _, other := range everyOperation() {
			other.Name, other.UID = "other "+other.Name, "other"
			for _, phase := range []v1alpha1.VirtualMachinePhase{v1alpha1.VirtualMachineRunning, v1alpha1.VirtualMachineStopping, v1alpha1.VirtualMachineStopped} {
				compare(&o, machine(v1alpha1.RunPolicyManual, phase), other)
				undoing := machine(v1alpha1.RunPolicyManual, phase)
				undoing.Status.Undoing = []v1alpha1.UndoingOperation{{ID: "other", Origin: v1alpha1.OriginOperation, Type: other.Spec.Type, End: v1alpha1.EndDeleted}}
				compare(&o, undoing, other)
				held := machine(v1alpha1.RunPolicyManual, phase)
				held.Status.ActiveOperation = &v1alpha1.ActiveOperation{ID: "x", Origin: v1alpha1.OriginRunPolicy, Type: other.Spec.Type}
				compare(&o, held)
			}
		}
		for _, step := range allSteps {
			moving := machine(v1alpha1.RunPolicyManual, v1alpha1.VirtualMachineMigrating)
			moving.Status.Migration = &v1alpha1.Migration{ID: "move", Step: step, Instance: "old"}
			compare(&o, moving)
			for _, origin := range []v1alpha1.ClaimOrigin{v1alpha1.OriginOperation, v1alpha1.OriginPlacement} {
				moving.Status.ActiveOperation = &v1alpha1.ActiveOperation{ID: "x", Origin: origin, Type: v1alpha1.OperationMigrate}
				compare(&o, moving)
			}
		}
		deleted := machine(v1alpha1.RunPolicyManual, v1alpha1.VirtualMachineRunning)
		deleted.Status.ActiveOperation = &v1alpha1.ActiveOperation{ID: "x", Origin: v1alpha1.OriginDeletion, Type: v1alpha1.OperationDelete}
		compare(&o, deleted)
	}
}
