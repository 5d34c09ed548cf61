//go:build unix

package testrun

import (
	"os/exec"
	"syscall"
)

// apart gives a command a process group of its own, and has its end be the end of all in it.
func apart(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
