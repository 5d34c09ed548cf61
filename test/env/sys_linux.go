package env

import (
	"errors"
	"os"
	"syscall"
)

// errLocked says that somebody else holds a lock.
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

// dieWithParent has a process killed when the thread that starts it ends.
func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}

// nullSignal asks whether a process exists.
const nullSignal = syscall.Signal(0)

// ownGroup keeps the signals of the terminal from a process: who started it decides when it ends.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
