package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Kind classifies an error for callers.
type Kind string

const (
	// KindNotFound means that the runtime does not know the machine.
	KindNotFound Kind = "NotFound"
	// KindInvalidState means that the request does not fit the machine's state or what is in flight for it.
	KindInvalidState Kind = "InvalidState"
	// KindInvalidSpec means that the runtime cannot carry out the spec, such as a template that it does not have.
	KindInvalidSpec Kind = "InvalidSpec"
	// KindToolsUnavailable means that the guest tools cannot be reached.
	KindToolsUnavailable Kind = "ToolsUnavailable"
	// KindUnavailable means that the runtime did not answer, or not in time. The request may have been done.
	KindUnavailable Kind = "Unavailable"
	// KindPermission means that the runtime denies the request for lack of rights.
	KindPermission Kind = "Permission"
	// KindOwnedByAnother means that the machine has another owner's mark.
	KindOwnedByAnother Kind = "OwnedByAnother"
	// KindNotSupported means that the runtime of the spec does not exist here. Something may have been created there before.
	KindNotSupported Kind = "NotSupported"
	// KindTakingOver means that nothing was sent because another process may still be sending, or because it is unknown whether what this one
	// has read is current. It is temporary.
	KindTakingOver Kind = "TakingOver"
	// KindInUse means that another machine uses a disk of the machine.
	KindInUse Kind = "InUse"
	// KindReadOnly means that nothing was sent because of a [Halt].
	KindReadOnly Kind = "ReadOnly"
)

// kinds has the reason of a condition that reports an error of each kind, and its outcome in metrics.
var kinds = map[Kind]struct {
	reason  v1alpha1.ConditionReason
	outcome string
}{
	KindNotFound:         {v1alpha1.ReasonInstanceNotFound, "not_found"},
	KindInvalidState:     {v1alpha1.ReasonRuntimeFailed, "invalid_state"},
	KindInvalidSpec:      {v1alpha1.ReasonInvalidSpec, "invalid_spec"},
	KindToolsUnavailable: {v1alpha1.ReasonRuntimeFailed, "tools_unavailable"},
	KindUnavailable:      {v1alpha1.ReasonRuntimeUnavailable, "unavailable"},
	KindPermission:       {v1alpha1.ReasonPermissionDenied, "permission"},
	KindOwnedByAnother:   {v1alpha1.ReasonOwnedByAnother, "owned_by_another"},
	KindNotSupported:     {v1alpha1.ReasonRuntimeNotSupported, "not_supported"},
	KindTakingOver:       {v1alpha1.ReasonTakingOver, "taking_over"},
	KindInUse:            {v1alpha1.ReasonDiskInUse, "in_use"},
	KindReadOnly:         {v1alpha1.ReasonReadOnly, "read_only"},
}

// Other is the error of a server that has another ID than before: the address leads elsewhere, or another one was restored there.
type Other struct{ Is, Was string }

func (o *Other) Error() string { return "the instance UUID is " + o.Is + ", and was " + o.Was }

// Error is the error of a runtime if its kind matters to callers. Any other error means that the runtime failed in
// another way.
type Error struct {
	// Kind is the kind of error.
	Kind Kind
	// Message is one sentence for users, without secrets. It becomes the message of a condition and must not change
	// while the error lasts: no times, no request IDs.
	Message string
	// Cause is the cause, for logs. It may be nil.
	Cause error
	// restored is for NewRestored.
	restored string
}

// Error returns the message and the cause.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func newError(kind Kind, cause error, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// NewNotFound returns an error which says that the runtime does not know the machine. The cause may be nil, here and
// below.
func NewNotFound(cause error, format string, args ...any) error {
	return newError(KindNotFound, cause, format, args...)
}

// NewInvalidState returns an error which says that the request does not fit the state of the machine.
func NewInvalidState(cause error, format string, args ...any) error {
	return newError(KindInvalidState, cause, format, args...)
}

// NewInvalidSpec returns an error which says that the spec cannot be carried out. The message begins with the field.
func NewInvalidSpec(cause error, format string, args ...any) error {
	return newError(KindInvalidSpec, cause, format, args...)
}

// NewInUse returns an InvalidState error which says that another machine uses a disk of the machine.
func NewInUse(format string, args ...any) error {
	return newError(KindInUse, nil, format, args...)
}

// NewRestored returns an InvalidState error which says that the runtime itself has restored the data of a disk into another one, with that ID.
func NewRestored(id, format string, args ...any) error {
	err := newError(KindInvalidState, nil, format, args...)
	err.restored = id
	return err
}

// RestoredTo returns the ID of the disk into which the runtime has restored a disk, or "".
func RestoredTo(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.restored
	}
	return ""
}

// NewToolsUnavailable returns an error which says that the guest tools cannot be reached.
func NewToolsUnavailable(cause error, format string, args ...any) error {
	return newError(KindToolsUnavailable, cause, format, args...)
}

// NewUnavailable returns an error which says that the runtime did not answer, or not in time.
func NewUnavailable(cause error, format string, args ...any) error {
	return newError(KindUnavailable, cause, format, args...)
}

var errDisconnected = errors.New("the runtime has no connection to the machine")

// NewDisconnected returns an Unavailable error which says that the runtime has lost the connection to the machine.
func NewDisconnected(format string, args ...any) error {
	return newError(KindUnavailable, errDisconnected, format, args...)
}

// NewPermission returns an error which says that the runtime denies the request. The message names the missing right.
func NewPermission(cause error, format string, args ...any) error {
	return newError(KindPermission, cause, format, args...)
}

// NewOwnedByAnother returns an error which says that the machine has another owner's mark. The message does not name
// an owner in another namespace.
func NewOwnedByAnother(cause error, format string, args ...any) error {
	return newError(KindOwnedByAnother, cause, format, args...)
}

// NewNotSupported returns an error which says that the runtime of the spec does not exist here.
func NewNotSupported(cause error, format string, args ...any) error {
	return newError(KindNotSupported, cause, format, args...)
}

// NewTakingOver returns an error which says that nothing was sent for now.
func NewTakingOver(cause error, format string, args ...any) error {
	return newError(KindTakingOver, cause, format, args...)
}

// kindOf returns the kind of the outermost Error. An ended context counts as Unavailable even if a runtime forgot to
// say so: the result of the request is unknown.
func kindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return KindUnavailable
	}
	return ""
}

// IsNotFound reports whether the runtime does not know the machine.
func IsNotFound(err error) bool { return kindOf(err) == KindNotFound }

// IsInvalidState reports whether the request did not fit the state of the machine.
func IsInvalidState(err error) bool {
	return kindOf(err) == KindInvalidState || kindOf(err) == KindInUse
}

// IsInvalidSpec reports whether the spec cannot be carried out.
func IsInvalidSpec(err error) bool { return kindOf(err) == KindInvalidSpec }

// IsToolsUnavailable reports whether the guest tools could not be reached.
func IsToolsUnavailable(err error) bool { return kindOf(err) == KindToolsUnavailable }

// IsUnavailable reports whether the runtime did not answer, or not in time. An ended context counts too.
func IsUnavailable(err error) bool { return kindOf(err) == KindUnavailable }

// IsDisconnected reports whether the runtime answered that it has lost the connection to the machine.
func IsDisconnected(err error) bool { return errors.Is(err, errDisconnected) }

// IsPermission reports whether the runtime denied the request for lack of rights.
func IsPermission(err error) bool { return kindOf(err) == KindPermission }

// IsOwnedByAnother reports whether the machine has another owner's mark.
func IsOwnedByAnother(err error) bool { return kindOf(err) == KindOwnedByAnother }

// IsNotSupported reports whether the runtime of the spec does not exist here.
func IsNotSupported(err error) bool { return kindOf(err) == KindNotSupported }

// IsTakingOver reports whether nothing was sent for now.
func IsTakingOver(err error) bool { return kindOf(err) == KindTakingOver }

// ErrReadOnly is the error of [ReadOnly].
var ErrReadOnly = newError(KindReadOnly, nil, "Sallyport is read-only and sends nothing to runtimes, see the chart value readOnly")

// ErrRestored is the error of the [Halt] of a manager whose etcd was restored from a backup: objects are older than what is on the runtimes.
var ErrRestored = newError(KindReadOnly, nil,
	"etcd was restored, so Sallyport sends nothing to runtimes; an administrator allows it with 'kubectl sallyport resume'")

// Halt returns why nothing is sent to runtimes for now, an error of [KindReadOnly], or nil. A nil Halt returns nil.
type Halt func() error

// ReadOnly is the [Halt] of a manager with the chart value readOnly.
func ReadOnly() error { return ErrReadOnly }

// Err returns the error of the halt.
func (h Halt) Err() error {
	if h == nil {
		return nil
	}
	return h()
}

// IsReadOnly reports whether nothing was sent because of a [Halt].
func IsReadOnly(err error) bool { return kindOf(err) == KindReadOnly }

// NothingOfOurs reports whether nothing with the mark of a machine or disk can be observed, and that will not pass: what is there belongs
// to another owner, the runtime does not exist, or it cannot have what the spec says. Nothing must be undone then, unless a status
// records that something was made.
func NothingOfOurs(err error) bool {
	return IsOwnedByAnother(err) || IsNotSupported(err) || IsInvalidSpec(err)
}

// MayHaveActed reports whether the request that returned this error may have been carried out or be in flight. It is
// false for nil: such a request has certainly acted, or had nothing to do.
func MayHaveActed(err error) bool {
	if err == nil {
		return false
	}
	kind := kindOf(err)
	return kind == KindUnavailable || kind == ""
}

// Reason returns the reason of a condition that reports the error. For nil it is empty.
func Reason(err error) v1alpha1.ConditionReason {
	if err == nil {
		return ""
	}
	if IsDisconnected(err) {
		return v1alpha1.ReasonDisconnected
	}
	return cmp.Or(kinds[kindOf(err)].reason, v1alpha1.ReasonRuntimeFailed)
}

// Message returns the message for users: that of the outermost Error without its cause, which may differ between
// attempts, or the whole text of any other error. For nil it is empty.
func Message(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	if kindOf(err) == KindUnavailable {
		return "the runtime did not answer in time"
	}
	return err.Error()
}
