package cli

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// maxGenerated is how much of generateName the API server keeps.
const maxGenerated = 58

// NewOperation returns the operation to create. The API server generates its name, which has the whole of the type, and as much of the
// machine's name as there is room for.
func NewOperation(namespace, machine string, spec v1alpha1.VirtualMachineOperationSpec) *v1alpha1.VirtualMachineOperation {
	spec.VirtualMachineName = machine
	end := "-" + strings.ToLower(string(spec.Type)) + "-"
	begin := strings.TrimRight(machine[:min(len(machine), maxGenerated-len(end))], "-.")
	return &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: begin + end}, Spec: spec}
}

// OperationText returns the name of an operation in text.
func OperationText(t v1alpha1.OperationType, force bool) string {
	if force {
		return "forced " + string(t)
	}
	return string(t)
}

// State is the phase, reason, progress and message of an operation: "InProgress, 40 %: waiting for the guest to shut down".
func State(o *v1alpha1.VirtualMachineOperation) string {
	text := string(cmp.Or(o.Status.Phase, v1alpha1.OperationPending))
	c := v1alpha1.ConditionCompleted.In(o.Status.Conditions)
	switch {
	case o.Status.Phase == "":
		text += ": waiting to be reconciled"
	case c != nil && c.Reason != text:
		text += ", " + c.Reason
	}
	if p := o.Status.Progress; p != nil && !o.Finished() {
		text += fmt.Sprintf(", %d %%", *p)
	}
	if c != nil && c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

// Superseder names the operation that superseded another one.
func Superseder(reference *v1alpha1.OperationReference) string {
	switch {
	case reference == nil:
		return "another operation"
	case reference.Name == "":
		return "the deletion of the machine"
	}
	return "operation " + reference.Name
}

// origins are the names of claims that no operation holds.
var origins = map[v1alpha1.ClaimOrigin]string{
	v1alpha1.OriginRunPolicy: "run policy", v1alpha1.OriginPlacement: "placement",
	v1alpha1.OriginRollout: "rollout", v1alpha1.OriginDeletion: "deletion",
}

// HolderName returns the name of the holder of a claim: an operation, or another origin.
func HolderName(t v1alpha1.OperationType, force bool, origin v1alpha1.ClaimOrigin, name string) string {
	if who := origins[origin]; who != "" {
		return fmt.Sprintf("%s (%s)", who, OperationText(t, force))
	}
	return OperationText(t, force) + " " + name
}
