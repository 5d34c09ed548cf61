//go:build unix

package testrun

import (
	"os/exec"
	"syscall"
)

// setProcessGroup starts a command in its own process group, which is killed as a whole.
func setProcessGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
