//go:build linux || darwin

package ova

import (
	"errors"
	"os"
	"syscall"
)

// lockMode is how a file is locked.
type lockMode int

const (
	// shared keeps a file from being removed.
	shared lockMode = syscall.LOCK_SH
	// exclusively is how a file is written or removed.
	exclusively lockMode = syscall.LOCK_EX
)

// lock locks an open file, in place of what it was locked as, until it is closed. It does not wait: see isLocked.
func lock(file *os.File, how lockMode) error {
	for {
		err := syscall.Flock(int(file.Fd()), int(how)|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

// isLocked reports whether somebody else has locked the file.
func isLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }
