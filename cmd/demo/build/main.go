// Command build builds the demo in a clone of the repository, and runs it: make demo. The first build takes minutes, so it begins with the
// part of sallyport that reviews, and shows a denial before it compiles the rest.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"sallyport.dev/sallyport/cmd/demo/denial"
	"sallyport.dev/sallyport/cmd/internal/terminal"
)

// binary is the demo, as make demo-binary builds it.
const binary = "bin/sallyport-demo"

// The program that is built, and its parts.
var (
	reviewer = target{pkg: "./cmd/demo/review", name: "sallyport review", usually: "3 minutes"}
	demo     = target{pkg: "./cmd/demo", name: "the demo", usually: "1 minute"}
)

func main() {
	p := terminal.NewPrinter(os.Stdout)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	args, err := prepare(ctx, p)
	switch {
	case ctx.Err() != nil:
		err = errors.New("the build was interrupted; to continue it, run make demo again")
	case err == nil:
		stop()
		err = syscall.Exec(binary, append(append([]string{binary}, args...), os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func prepare(ctx context.Context, p terminal.Printer) (args []string, err error) {
	if _, err := os.Stat(binary); err != nil {
		if err := first(ctx, p); err != nil {
			return nil, err
		}
		args = []string{"--denial=false"}
	}
	return args, demo.build(ctx, p, binary)
}

// first builds what shows a denial, and shows it.
func first(ctx context.Context, p terminal.Printer) error {
	folder, err := os.MkdirTemp("", "sallyport-demo-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, "sallyport")
	if err := reviewer.build(ctx, p, program); err != nil {
		return err
	}
	return denial.Show(ctx, p, folder, program)
}
