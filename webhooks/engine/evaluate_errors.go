package engine

import (
	"errors"
	"fmt"
	"slices"
)

// Cause is why no decision could be made. The values are stable: metrics, decision records and denials contain them.
type Cause string

// Causes of an [*Error].
const (
	// InputNotUnderstood means that valid_input did not hold, or a fact was undefined for this request.
	InputNotUnderstood Cause = "InputNotUnderstood"
	// CompileFailed means that no revision of the policy compiles. Callers set it, not the engine.
	CompileFailed Cause = "CompileFailed"
	// FactUnavailable means that a fact could not be read, or its kind is not synced yet.
	FactUnavailable Cause = "FactUnavailable"
	// DeadlineExceeded means that facts and evaluation took longer than the policy's timeout.
	DeadlineExceeded Cause = "DeadlineExceeded"
	// CallerGone means that the caller disconnected before the decision. It is not an error of the policy.
	CallerGone Cause = "CallerGone"
	// StillRunning means that too many earlier evaluations of this policy exceeded their deadline and still run; or that earlier
	// evaluations for the same user and namespace did not end in time; or that all running evaluations together need too much
	// memory.
	StillRunning Cause = "StillRunning"
	// EvaluationFailed means that Rego stopped with an error, such as a builtin with an operand of the wrong type.
	EvaluationFailed Cause = "EvaluationFailed"
	// ContractViolated means that a value of the policy violates the contract.
	ContractViolated Cause = "ContractViolated"
	// Panicked means that evaluating the policy panicked.
	Panicked Cause = "Panicked"
)

// IsCause reports whether the reason of a denial is a Cause rather than one of the policy's own reasons.
func IsCause(reason string) bool {
	return slices.Contains([]Cause{
		InputNotUnderstood, CompileFailed, FactUnavailable, DeadlineExceeded, CallerGone, StillRunning, EvaluationFailed, ContractViolated, Panicked,
	}, Cause(reason))
}

// Error means that a policy could not decide. The caller applies the policy's onError.
type Error struct {
	Cause Cause
	Err   error
	// Facts are those of the failed evaluation; nil if not all of them were answered.
	Facts map[string]Fact

	fact string // the undefined fact, if that is the cause
}

// Error returns the message without the cause, which callers show beside it.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

func errorf(cause Cause, format string, args ...any) *Error {
	return &Error{Cause: cause, Err: fmt.Errorf(format, args...)}
}

// withFacts sets the facts of an error.
func withFacts(facts map[string]Fact, err error) error {
	var mine *Error
	if errors.As(err, &mine) {
		mine.Facts = facts
	}
	return err
}
