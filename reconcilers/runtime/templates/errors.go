package templates

import (
	"errors"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// NewTaken returns the error of a name that another object in the folder has.
func NewTaken(cause error, name string) error {
	return runtime.NewInvalidState(cause, "the folder contains another object named %s: rename or remove it", name)
}

var errTooSlow = errors.New("the download is too slow")

// NewTooSlow returns the error of a download that was aborted because it is too slow.
func NewTooSlow(format string, args ...any) error {
	return runtime.NewUnavailable(errTooSlow, format, args...)
}

// IsTooSlow reports whether an error is that of NewTooSlow.
func IsTooSlow(err error) bool { return errors.Is(err, errTooSlow) }
