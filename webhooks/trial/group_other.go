//go:build !unix

package trial

import "os/exec"

func apart(*exec.Cmd) {}
