package drive

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Intent is the change that a holder wants for a machine.
type Intent struct {
	// Type and Force say what.
	Type  v1alpha1.OperationType
	Force bool
	// Target is where a machine goes that is moved.
	Target v1alpha1.MigrateTarget
	// Grace is how long a guest has that is asked to shut down. Then the power is taken away, and at once if the guest cannot be
	// asked. Nil means that this is never done.
	Grace *time.Duration
	// Hold tells whether a step is not to be begun yet. Nil means that none is held up.
	Hold func(runtime.TaskKind) bool
	// Brief spares the write that the runtime was told if the intent is reached at once, as seen in another look.
	Brief bool
}

// Record is what was persisted of an intent since the machine was taken for it.
type Record struct {
	// Was is how the machine was before anything was done, nil as long as that is not written down.
	Was *v1alpha1.OperationBaseline
	// Step is the one that was begun last. It is needed of an intent whose steps do not show in the end.
	Step v1alpha1.OperationStep
	// Signal is how far that has come.
	Signal v1alpha1.ClaimSignal
	// GuestAskedAt is when the guest was asked to shut down.
	GuestAskedAt *metav1.MicroTime
}

// Holder holds the claim on a machine.
type Holder interface {
	// String is what people call it, such as "operation stop-1".
	String() string
	// Intent is what it wants.
	Intent() Intent
	// Record is what it has been told to write down.
	Record() Record
	// Saw shows the machine as it was seen, before anything rests on it. Done tells whether the intent is reached.
	Saw(ctx context.Context, seen *runtime.Observation, done bool) error
	// Write persists how far the intent has come, and shows it, if that is anything new, which it reports. It fails if anything
	// is not as it was read.
	Write(context.Context, Progress) (bool, error)
}

// State is how far an intent has come.
type State int

const (
	// Waits means that there is nothing to do but to wait: Reason and Message say for what, and Err if it is an error.
	Waits State = iota
	// Busy means that the runtime is doing Task.
	Busy
	// Begins means that it begins, with the machine as in Was, and with Step.
	Begins
	// Steps means that a step is reached and that Step is the next.
	Steps
	// Sending means that the runtime is about to be told.
	Sending
	// Sent means that it was told.
	Sent
	// Forces means that the guest has had its time: the power is taken away next.
	Forces
	// Done means that the intent is reached.
	Done
	// Hopeless means that it never can be.
	Hopeless
)

// Progress is what becomes of an intent.
type Progress struct {
	State State
	// Reason and Message are for the condition.
	Reason  v1alpha1.ConditionReason
	Message string
	// Task is what the runtime is doing.
	Task runtime.Task
	// Err is what went wrong, if anything did.
	Err error
	// Was and Step must be kept in the [Record]. The step is the one that starts, or that is sent to the runtime; with Done, one that was
	// just sent.
	Was  *v1alpha1.OperationBaseline
	Step v1alpha1.OperationStep
}
