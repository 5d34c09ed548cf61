//go:build !linux

package lookup

import (
	"errors"
	"os"
)

var errLocked = errors.New("locked")

// tryLock always fails: a local control plane needs Linux.
func tryLock(*os.File) error { return errors.New("a local control plane needs Linux") }
