package tools

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

// Whatever a command is at, it ends at a signal, which main makes an end of the context: what it waits for here looks at a context as little
// as OPA's compiler does.
func TestCommandsEndAtASignal(t *testing.T) {
	for _, args := range []string{"policy check -", "policy test -", "policy docs -", "matrix --policies -", "review -f -", "replay -"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			stdin, writer := io.Pipe()
			defer writer.Close()
			go func() {
				_, _ = writer.Write([]byte("#")) // which returns when the command has begun to read
				cancel()
			}()
			command := newCommand()
			var errs bytes.Buffer
			command.SetIn(stdin)
			command.SetOut(io.Discard)
			command.SetErr(&errs)
			command.SetArgs(strings.Fields(args))
			if code := Run(ctx, command); code != 2 || !strings.Contains(errs.String(), "was interrupted: context canceled") {
				t.Errorf("exit %d: %s", code, errs.String())
			}
		})
	}
}
