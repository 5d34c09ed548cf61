//go:build !unix

package testrun

import "os/exec"

// setProcessGroup does nothing.
func setProcessGroup(*exec.Cmd) {}
