package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newDemoCommand() *cobra.Command {
	var script bool
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show Sallyport on a control plane and a simulated vCenter of its own",
		Long: "Starts a Kubernetes control plane and a simulated vCenter on this machine, installs Sallyport and walks through operations\n" +
			"that are admitted, refused and superseded, with real kubectl. Then it stays up for you to try, until Ctrl-C. It runs in a\n" +
			"clone of the repository and needs Linux, Go, and a module proxy the first time. Nothing is left behind but build caches.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return runDemo(command.Context(), command.OutOrStdout(), script)
		},
	}
	command.Flags().BoolVar(&script, "script", false, "end after the walk, with a verdict as the exit code")
	return command
}

// runDemo starts everything, walks, and ends everything, whatever happens in between.
func runDemo(ctx context.Context, out io.Writer, script bool) (err error) {
	p := printer{Writer: out, colour: isTerminal(out)}
	s, err := newStage(ctx, p)
	defer func() {
		err = errors.Join(err, s.close())
		if ctx.Err() != nil {
			p.say("Everything is removed.")
		}
	}()
	if err == nil {
		err = (&show{printer: p, stage: s, ctx: ctx}).walk()
	}
	switch {
	case ctx.Err() != nil:
		p.say("")
		return &verdictError{"The demo was interrupted before its end."}
	case err != nil || script:
		return err
	}
	s.explain(p)
	<-ctx.Done()
	p.say("\nEnding ...")
	return nil
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
}

// printer writes for people; colours only where they can be seen.
type printer struct {
	io.Writer
	colour bool
}

// Colours of a terminal.
const bold, red, green, cyan = "1", "31", "1;32", "36"

func (p printer) say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p printer) paint(colour, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
