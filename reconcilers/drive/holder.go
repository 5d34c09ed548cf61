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
	// Type and Force are those of the operation.
	Type  v1alpha1.OperationType
	Force bool
	// Target is where a move goes.
	Target v1alpha1.MigrateTarget
	// Grace is how long a graceful shutdown may take. Afterwards the power is cut, or at once if the guest cannot be
	// asked. Nil means never.
	Grace *time.Duration
	// Hold reports whether a step must not begin yet. Nil holds no step.
	Hold func(runtime.TaskKind) bool
	// Brief skips the write of a sent request if another observation shows that the intent is already reached.
	Brief bool
}

// Record is the persisted progress of an intent since its claim.
type Record struct {
	// Was is the state of the machine before the first request, nil until persisted.
	Was *v1alpha1.OperationBaseline
	// Step is the last step begun. It is needed if the final state does not show which steps have run.
	Step v1alpha1.OperationStep
	// Signal is the state of the step's request.
	Signal       v1alpha1.ClaimSignal
	GuestAskedAt *metav1.MicroTime
}

// Holder holds the claim on a machine.
type Holder interface {
	// String returns the name used in messages, such as "operation stop-1".
	String() string
	// Intent returns the change that the holder wants.
	Intent() Intent
	// Record returns the persisted progress.
	Record() Record
	// Saw receives each observation before any progress that is based on it. done is set if the intent is reached.
	Saw(ctx context.Context, seen *runtime.Observation, done bool) error
	// Write persists and shows the progress, and reports whether anything changed. It fails if an object has changed
	// since it was read.
	Write(context.Context, Progress) (bool, error)
}

// State is the state of an intent.
type State int

const (
	// Waits means that the intent waits: Reason and Message say for what, Err is set if an error caused it.
	Waits State = iota
	// Busy means that the runtime is doing Task.
	Busy
	// Begins means that the first step, Step, begins with the baseline Was.
	Begins
	// Steps means that a step is reached and Step is the next one.
	Steps
	// Sending means that the request is about to be sent.
	Sending
	// Sent means that the request was sent.
	Sent
	// Forces means that the grace period is over: the power is cut next.
	Forces
	// Done means that the intent is reached.
	Done
	// Hopeless means that the intent can never be reached.
	Hopeless
)

// Progress is the progress of an intent, for the holder to persist.
type Progress struct {
	State State
	// Reason and Message are for the condition.
	Reason  v1alpha1.ConditionReason
	Message string
	// Task is the task in flight.
	Task runtime.Task
	// Err is the error that the intent waits for, or nil.
	Err error
	// Was and Step must be kept in the [Record]. The step is the one that starts, or that is sent to the runtime; with Done, one that was
	// just sent.
	Was  *v1alpha1.OperationBaseline
	Step v1alpha1.OperationStep
}
