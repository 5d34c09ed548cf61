package template

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// NewTaken is the error of a name that something else in the folder has.
func NewTaken(cause error, name string) error {
	return runtime.NewInvalidState(cause, "the folder contains another object named %s: rename or remove it", name)
}

// errTooSlow marks the errors of a download that is too slow.
var errTooSlow = errors.New("the download is too slow")

// NewTooSlow is the error of a download that is given up because it is too slow.
func NewTooSlow(format string, args ...any) error {
	return runtime.NewUnavailable(errTooSlow, format, args...)
}

// errOverdue is the error of an import that is given up because it takes too long.
var errOverdue = runtime.NewUnavailable(nil, "the import did not complete in %s", duration.HumanDuration(patience))

// reasonOf returns the reason of a condition that reports the error.
func reasonOf(err error) v1alpha1.ConditionReason {
	switch {
	case errors.Is(err, errTooSlow):
		return v1alpha1.ReasonDownloadTooSlow
	case errors.Is(err, errOverdue):
		return v1alpha1.ReasonImportTimedOut
	}
	return runtime.Reason(err)
}

// refusal is why nothing is done in a failure domain until people, or time, change something.
type refusal struct {
	reason  string
	message string
}

func refused(reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}
