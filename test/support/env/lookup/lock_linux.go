package lookup

import (
	"errors"
	"os"
	"syscall"
)

// errLocked says that another process holds a lock.
var errLocked = syscall.EWOULDBLOCK

// tryLock locks a file for this process, or returns errLocked.
func tryLock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
