//go:build !linux && !darwin

package ova

import (
	"errors"
	"os"
)

// The manager runs on Linux. The kubectl plugin, which is the same program, is built for other systems as well.

type lockMode int

const (
	shared lockMode = iota
	exclusively
)

func lock(*os.File, lockMode) error { return errors.ErrUnsupported }

func isLocked(error) bool { return false }
