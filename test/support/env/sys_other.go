//go:build !linux

package env

import "syscall"

// The package compiles everywhere, so that the command line that uses it does, but works on Linux only: other systems do
// not have all of 127.0.0.0/8 on the loopback device.

func dieWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

func ownGroup() *syscall.SysProcAttr { return nil }

const nullSignal = syscall.Signal(0)

const pauseSignal, resumeSignal = nullSignal, nullSignal
