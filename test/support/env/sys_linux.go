package env

import "syscall"

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

// These stop a process and let it go on.
const pauseSignal, resumeSignal = syscall.SIGSTOP, syscall.SIGCONT
