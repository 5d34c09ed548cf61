// Package denial is the first chapter of the demo: a denial that needs no cluster. The demo shows it while the control plane starts, and the
// first build of the demo while most of it is being compiled.
package denial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sallyport.dev/sallyport/cmd/internal/terminal"
)

// The files of docs/review.md.
const (
	state = `apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: web-1}
spec: {runPolicy: Manual, runtime: {pod: {}}}
status: {phase: Stopping}
---
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachineOperation
metadata: {name: stop-1}
spec: {virtualMachineName: web-1, type: Stop}
status: {phase: InProgress}
`
	start = `apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachineOperation
metadata: {name: start-1}
spec: {virtualMachineName: web-1, type: Start}
`
)

// reason is the reason of the denial.
const reason = "OperationInProgress"

// Show runs sallyport review on two files, which it writes to the folder, and prints files, command and output. The program is sallyport,
// or one that has its command review. The error says what is not as expected.
func Show(ctx context.Context, p terminal.Printer, folder, program string) error {
	p.Say("\n%s\nsallyport review evaluates the shipped policies on files. Here a Stop of web-1 is in progress, and a user wants to start web-1:",
		p.Paint(terminal.Bold, "A first denial, without a cluster"))
	for _, file := range []struct{ name, text string }{{"state.yaml", state}, {"start.yaml", start}} {
		if err := os.WriteFile(filepath.Join(folder, file.name), []byte(file.text), 0o600); err != nil {
			return err
		}
		p.Say("\n%s\n%s", p.Paint(terminal.Bold, "$ cat "+file.name), strings.TrimSuffix(file.text, "\n"))
	}
	const line = "review -f start.yaml --state state.yaml"
	p.Say("\n%s", p.Paint(terminal.Bold, "$ sallyport "+line))
	command := exec.CommandContext(ctx, program, strings.Fields(line)...)
	command.Dir = folder
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	out, err := command.CombinedOutput()
	p.Say("%s\n", p.Paint(terminal.Red, strings.TrimSuffix(string(out), "\n")))
	const denied = 1
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.As(err, &exit) || exit.ExitCode() != denied || !strings.Contains(string(out), reason):
		return fmt.Errorf("sallyport %s: expected a denial with reason %s, got: %w", line, reason, err)
	}
	return nil
}
