package engine

import (
	"errors"
	"fmt"
	"slices"
)

// Cause says why no decision could be made. The values are stable: metrics, decision records and denials carry them.
type Cause string

// The causes of an [*Error].
const (
	// InputNotUnderstood: valid_input did not hold, or a fact was undefined for this request.
	InputNotUnderstood Cause = "InputNotUnderstood"
	// CompileFailed: the policy does not compile, and no revision of it that does is known. Callers say so, not the engine.
	CompileFailed Cause = "CompileFailed"
	// FactUnavailable: the answer to a fact could not be read, or its kind is not synced yet.
	FactUnavailable Cause = "FactUnavailable"
	// DeadlineExceeded: facts and evaluation took longer than the policy's timeout.
	DeadlineExceeded Cause = "DeadlineExceeded"
	// CallerGone: who asked left before there was a decision. It says nothing about the policy.
	CallerGone Cause = "CallerGone"
	// StillRunning: too many earlier evaluations of this policy overran their deadline and have not returned; or earlier evaluations for the
	// same user and namespace did not end in time; or all running evaluations together need too much memory.
	StillRunning Cause = "StillRunning"
	// EvaluationFailed: Rego stopped with an error, for example a builtin that got the wrong type.
	EvaluationFailed Cause = "EvaluationFailed"
	// ContractViolated: the policy produced something that the contract does not allow.
	ContractViolated Cause = "ContractViolated"
	// Panicked: evaluating the policy panicked.
	Panicked Cause = "Panicked"
)

// IsCause tells whether the reason that is given for a policy's denial is not one of its own, but why it could not decide.
func IsCause(reason string) bool {
	return slices.Contains([]Cause{
		InputNotUnderstood, CompileFailed, FactUnavailable, DeadlineExceeded, CallerGone, StillRunning, EvaluationFailed, ContractViolated, Panicked,
	}, Cause(reason))
}

// Error means that a policy could not decide. It is never a verdict: the caller applies the policy's onError.
type Error struct {
	Cause Cause
	Err   error
	// Facts are what the policy could not decide on; nil if not all of them were answered.
	Facts map[string]Fact

	fact string // that is undefined, if that is the cause
}

// Error gives the message without the cause, which callers show beside it.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the underlying error.
func (e *Error) Unwrap() error { return e.Err }

func errorf(cause Cause, format string, args ...any) *Error {
	return &Error{Cause: cause, Err: fmt.Errorf(format, args...)}
}

// on notes the facts that an evaluation failed on.
func on(facts map[string]Fact, err error) error {
	var mine *Error
	if errors.As(err, &mine) {
		mine.Facts = facts
	}
	return err
}
