package template

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// errOverdue is the error of an import that was aborted because it takes too long.
var errOverdue = runtime.NewUnavailable(nil, "the import did not complete in %s", duration.HumanDuration(patience))

func reasonOf(err error) v1alpha1.ConditionReason {
	switch {
	case templates.IsTooSlow(err):
		return v1alpha1.ReasonDownloadTooSlow
	case errors.Is(err, errOverdue):
		return v1alpha1.ReasonImportTimedOut
	}
	return runtime.Reason(err)
}

// blockReason is why a failure domain waits until a user or time changes something.
type blockReason struct {
	reason  string
	message string
}

func blocked(reason, format string, args ...any) *blockReason {
	return &blockReason{reason: reason, message: fmt.Sprintf(format, args...)}
}
