package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
)

var errCause = errors.New("socket closed, request 17")

// verdict is all that can be asked of an error.
type verdict struct {
	NotFound, InvalidState, Tools, Unavailable, Permission, Owned, NotSupported bool

	MayHaveActed bool
	Reason       v1alpha1.ConditionReason
	Message      string
}

func judge(err error) verdict {
	return verdict{
		IsNotFound(err), IsInvalidState(err), IsToolsUnavailable(err), IsUnavailable(err), IsPermission(err), IsOwnedByAnother(err),
		IsNotSupported(err),
		MayHaveActed(err), Reason(err), Message(err),
	}
}

func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want verdict
	}{
		"none": {nil, verdict{}},
		"not found": {NewNotFound(errCause, "no %s", "vm"),
			verdict{NotFound: true, Reason: v1alpha1.ReasonInstanceNotFound, Message: "no vm"}},
		"invalid state": {NewInvalidState(errCause, "%d tasks", 2),
			verdict{InvalidState: true, Reason: v1alpha1.ReasonRuntimeFailed, Message: "2 tasks"}},
		"no tools": {NewToolsUnavailable(errCause, "no tools"),
			verdict{Tools: true, Reason: v1alpha1.ReasonRuntimeFailed, Message: "no tools"}},
		"unavailable": {NewUnavailable(errCause, "no answer"),
			verdict{Unavailable: true, MayHaveActed: true, Reason: v1alpha1.ReasonRuntimeUnavailable, Message: "no answer"}},
		"no connection to the machine": {NewDisconnected("shown as %s", "disconnected"),
			verdict{Unavailable: true, MayHaveActed: true, Reason: v1alpha1.ReasonDisconnected, Message: "shown as disconnected"}},
		"no permission": {NewPermission(errCause, "needs VirtualMachine.Interact.PowerOn"),
			verdict{Permission: true, Reason: v1alpha1.ReasonPermissionDenied, Message: "needs VirtualMachine.Interact.PowerOn"}},
		"another owner": {NewOwnedByAnother(errCause, "theirs"),
			verdict{Owned: true, Reason: v1alpha1.ReasonOwnedByAnother, Message: "theirs"}},
		"no such runtime": {NewNotSupported(errCause, "no kubevirt here"),
			verdict{NotSupported: true, Reason: v1alpha1.ReasonRuntimeNotSupported, Message: "no kubevirt here"}},
		"a wrapped one": {fmt.Errorf("powering on: %w", NewNotFound(errCause, "no vm")),
			verdict{NotFound: true, Reason: v1alpha1.ReasonInstanceNotFound, Message: "no vm"}},
		"the outermost of two": {NewUnavailable(NewNotFound(nil, "no datacenter"), "no answer"),
			verdict{Unavailable: true, MayHaveActed: true, Reason: v1alpha1.ReasonRuntimeUnavailable, Message: "no answer"}},
		"a certain one that rests on a deadline": {NewPermission(context.DeadlineExceeded, "locked out"),
			verdict{Permission: true, Reason: v1alpha1.ReasonPermissionDenied, Message: "locked out"}},
		"a bare deadline": {fmt.Errorf("asking: %w", context.DeadlineExceeded),
			verdict{Unavailable: true, MayHaveActed: true, Reason: v1alpha1.ReasonRuntimeUnavailable, Message: "the runtime did not answer in time"}},
		"a bare cancellation": {context.Canceled,
			verdict{Unavailable: true, MayHaveActed: true, Reason: v1alpha1.ReasonRuntimeUnavailable, Message: "the runtime did not answer in time"}},
		"any other": {errCause,
			verdict{MayHaveActed: true, Reason: v1alpha1.ReasonRuntimeFailed, Message: errCause.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, judge(tc.err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	err := NewUnavailable(errCause, "no answer from %s", "vc-1")
	if !errors.Is(err, errCause) {
		t.Errorf("%v does not wrap its cause", err)
	}
	if got, want := err.Error(), "no answer from vc-1: "+errCause.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := NewUnavailable(nil, "no answer").Error(); got != "no answer" {
		t.Errorf("got %q for an error without cause", got)
	}
}
