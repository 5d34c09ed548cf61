package template

import (
	"errors"
	"fmt"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// errTaken marks the errors of a name that something else has.
var errTaken = errors.New("the name is taken")

// NewTaken is the error of a name that something else in the folder has.
func NewTaken(cause error, name string) error {
	return runtime.NewInvalidState(errors.Join(errTaken, cause), "the folder contains another object named %s: rename or remove it", name)
}

// IsTaken reports whether a name was refused because something else in the folder has it.
func IsTaken(err error) bool { return errors.Is(err, errTaken) }

// refusal is why nothing is done in a failure domain until people, or time, change something.
type refusal struct {
	reason  string
	message string
}

func refused(reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}
