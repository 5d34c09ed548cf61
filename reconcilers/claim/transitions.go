package claim

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// MaxUndoing is the maximum number of former holders in the status; the schema has the same limit.
const MaxUndoing = 256

// Errors of transitions. The claim is unchanged after any of them.
var (
	// ErrHeld means that another holder has claimed the machine and is not superseded.
	ErrHeld = errors.New("the machine is claimed by another holder")
	// ErrLost means that the claim was superseded or withdrawn. The holder is being undone and cannot claim the
	// machine again.
	ErrLost = errors.New("the claim was superseded or withdrawn and is being undone")
	// ErrNotHeld means that the caller has not claimed the machine.
	ErrNotHeld = errors.New("the machine is not claimed by the caller")
	// ErrFull means that too many earlier claims are still being undone; one has to settle first.
	ErrFull = errors.New("too many earlier claims are still being undone")
)

// Holder is a holder of the claim on a machine, or one that wants to claim it.
type Holder struct {
	// ID identifies the claim: the UID of the operation, or an ID made for the claim.
	ID string
	// Origin is what requested the change.
	Origin v1alpha1.ClaimOrigin
	// Name of the operation; empty for every other origin.
	Name string
	// Type and Force say what is done.
	Type  v1alpha1.OperationType
	Force bool
	// NodeName is the node that an operation of type Migrate names, empty for every other holder.
	NodeName string
}

// String describes the holder in messages, such as "forced Stop stop-1" or "Start by
// RunPolicy".
func (h Holder) String() string {
	what := string(h.Type)
	if h.Force {
		what = "forced " + what
	}
	if h.Origin == v1alpha1.OriginOperation {
		return what + " " + h.Name
	}
	return what + " by " + string(h.Origin)
}

// Former returns the holder that an entry of undoing describes.
func Former(u *v1alpha1.UndoingOperation) Holder {
	return Holder{ID: u.ID, Origin: u.Origin, Name: u.Name, Type: u.Type, Force: u.Force}
}

// OfOperation returns the holder for an operation.
func OfOperation(o *v1alpha1.VirtualMachineOperation) Holder {
	h := Holder{ID: string(o.UID), Origin: v1alpha1.OriginOperation, Name: o.Name, Type: o.Spec.Type, Force: o.Spec.Force}
	if o.Spec.Migrate != nil {
		h.NodeName = o.Spec.Migrate.NodeName
	}
	return h
}

// Current returns the current holder, and false if the machine is free.
func Current(status *v1alpha1.VirtualMachineStatus) (Holder, bool) {
	a := status.ActiveOperation
	if a == nil {
		return Holder{}, false
	}
	return Holder{ID: a.ID, Origin: a.Origin, Name: a.Name, Type: a.Type, Force: a.Force, NodeName: a.NodeName}, true
}

// Holds reports whether the claim has this ID.
func Holds(status *v1alpha1.VirtualMachineStatus, id string) bool {
	return status.ActiveOperation != nil && status.ActiveOperation.ID == id
}

// Lost reports whether the claim with this ID is being undone. It takes precedence over the status of the operation.
func Lost(status *v1alpha1.VirtualMachineStatus, id string) bool {
	return slices.ContainsFunc(status.Undoing, func(u v1alpha1.UndoingOperation) bool { return u.ID == id })
}

// Take transfers the claim to a new holder. The holders in yield, whether they have claimed the machine or wait for it, go to
// undoing as superseded; the present holder must be among them. If next already has the claim, nothing changes, so that a pass
// after a lost reply continues where the last one was.
func Take(status *v1alpha1.VirtualMachineStatus, next Holder, yield []Holder, now metav1.MicroTime) error {
	if Lost(status, next.ID) {
		return fmt.Errorf("%s of %s: %w", next.Type, next.Origin, ErrLost)
	}
	if Holds(status, next.ID) {
		return nil
	}
	if present, held := Current(status); held && !slices.ContainsFunc(yield, func(h Holder) bool { return h.ID == present.ID }) {
		return fmt.Errorf("%s of %s %s: %w", present.Type, present.Origin, present.Name, ErrHeld)
	}
	by := &v1alpha1.OperationReference{Name: next.Name, UID: types.UID(next.ID)}
	after := v1alpha1.VirtualMachineStatus{Undoing: slices.Clone(status.Undoing)}
	for _, h := range yield {
		if h.ID != next.ID && !Lost(&after, h.ID) { // keep an existing entry: it records how that holder ends
			after.Undoing = append(after.Undoing, undoingEntry(h, v1alpha1.EndSuperseded, by))
		}
	}
	if len(after.Undoing) > max(MaxUndoing, len(status.Undoing)) {
		return ErrFull
	}
	status.Undoing = after.Undoing
	status.ActiveOperation = &v1alpha1.ActiveOperation{
		ID: next.ID, Origin: next.Origin, Name: next.Name, Type: next.Type, Force: next.Force, NodeName: next.NodeName,
		ClaimedAt: now, PreviousIntent: status.PowerIntent.DeepCopy(),
	}
	if state := Leaves(next.Type); state != "" {
		status.PowerIntent = &v1alpha1.PowerIntent{State: state, By: next.author(), At: now}
	}
	return nil
}

// Finish frees the machine after success. The power intent stays.
func Finish(status *v1alpha1.VirtualMachineStatus, id string) error {
	if !Holds(status, id) {
		return ErrNotHeld
	}
	status.ActiveOperation = nil
	return nil
}

// Withdraw frees the machine of a holder that ends without success: by its deadline, deletion or failure. It stays in
// undoing until nothing of it is in flight. The power intent from before its claim is restored.
func Withdraw(status *v1alpha1.VirtualMachineStatus, id string, end v1alpha1.UndoEnd) error {
	if !Holds(status, id) {
		return ErrNotHeld
	}
	if len(status.Undoing) >= MaxUndoing {
		return ErrFull
	}
	holder, _ := Current(status)
	if Leaves(holder.Type) != "" {
		status.PowerIntent = status.ActiveOperation.PreviousIntent.DeepCopy()
	}
	status.Undoing = append(slices.Clone(status.Undoing), undoingEntry(holder, end, nil))
	status.ActiveOperation = nil
	return nil
}

// Track records the runtime task that an entry of undoing waits for, once, and reports whether it did.
func Track(status *v1alpha1.VirtualMachineStatus, id, task string) bool {
	i := slices.IndexFunc(status.Undoing, func(u v1alpha1.UndoingOperation) bool { return u.ID == id })
	if i < 0 || status.Undoing[i].Task != "" || task == "" {
		return false
	}
	status.Undoing = slices.Clone(status.Undoing)
	status.Undoing[i].Task = task
	return true
}

// Settle removes an entry of undoing: nothing of it is in flight, and its operation has its final status.
func Settle(status *v1alpha1.VirtualMachineStatus, id string) error {
	if !Lost(status, id) {
		return ErrNotHeld
	}
	status.Undoing = slices.DeleteFunc(slices.Clone(status.Undoing), func(u v1alpha1.UndoingOperation) bool { return u.ID == id })
	return nil
}

func undoingEntry(h Holder, end v1alpha1.UndoEnd, by *v1alpha1.OperationReference) v1alpha1.UndoingOperation {
	return v1alpha1.UndoingOperation{
		ID: h.ID, Origin: h.Origin, Name: h.Name, Type: h.Type, Force: h.Force, End: end, By: by,
	}
}

// author returns the name under which a power intent is recorded.
func (h Holder) author() string {
	if h.Name != "" {
		return h.Name
	}
	return string(h.Origin)
}
