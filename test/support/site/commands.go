package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

type command func(ts *testscript.TestScript, neg bool, args []string)

var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"kubectl":         printed("kubectl", 1),
	"records":         printed("records", 0),
	"audit":           printed("audit", 0),
	"metrics":         printed("metrics", 1),
	"kstatus":         printed("kstatus", 1),
	"wait-for":        waitFor,
	"capture":         positive(1, capture),
	"line":            positive(3, line),
	"edit":            positive(3, edit),
	"expand":          positive(1, expand),
	"hold":            positive(2, hold),
	"release":         positive(2, release),
	"ignore-shutdown": positive(1, ignoreShutdown),
	"instance":        instance,
	"disk":            positive(1, disk),
	"manager":         positive(1, manager),
}

// printed returns the command that runs a printer with at least so many arguments.
func printed(name string, least int) command {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if len(args) < least {
			ts.Fatalf("%s needs %d arguments", name, least)
		}
		stdout, stderr, err := printers[name](context.Background(), ts, args)
		show(ts, stdout, stderr)
		switch {
		case err != nil && !neg:
			ts.Fatalf("%s failed: %v", name, err)
		case err == nil && neg:
			ts.Fatalf("%s succeeded unexpectedly", name)
		}
	}
}

// show makes texts the output of the command, which the script can compare.
func show(ts *testscript.TestScript, stdout, stderr string) {
	_, _ = ts.Stdout().Write([]byte(stdout)) // into memory
	_, _ = ts.Stderr().Write([]byte(stderr))
}

func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || printers[args[1]] == nil {
		ts.Fatalf("usage: [!] wait-for PATTERN kubectl|records|audit|metrics|kstatus ARGUMENT...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var stdout, stderr string
	err = step.Await(context.Background(), func(ctx context.Context) (bool, error) {
		stdout, stderr, _ = printers[args[1]](ctx, ts, args[2:])
		return pattern.MatchString(stdout+stderr) != neg, nil
	})
	show(ts, stdout, stderr)
	ts.Check(err)
}

// positive returns the command that cannot be negated and has at least so many arguments.
func positive(least int, do func(ts *testscript.TestScript, args []string) error) command {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < least {
			ts.Fatalf("needs at least %d arguments, and cannot be negated", least)
		}
		ts.Check(do(ts, args))
	}
}

func capture(ts *testscript.TestScript, args []string) error {
	text := strings.TrimSpace(ts.ReadFile("stdout"))
	if text == "" {
		return errors.New("the last command printed nothing")
	}
	ts.Setenv(args[0], text)
	return nil
}

func line(ts *testscript.TestScript, args []string) error {
	before, _, found := strings.Cut(ts.ReadFile(args[1]), args[2])
	if !found {
		return fmt.Errorf("%s has no %q", args[1], args[2])
	}
	ts.Setenv(args[0], strconv.Itoa(strings.Count(before, "\n")+1))
	return nil
}

func edit(ts *testscript.TestScript, args []string) error {
	text := ts.ReadFile(args[0])
	if !strings.Contains(text, args[1]) {
		return fmt.Errorf("%s has no %q", args[0], args[1])
	}
	return os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(text, args[1], args[2], 1)), 0o600)
}

func expand(ts *testscript.TestScript, files []string) error {
	for _, file := range files {
		if err := os.WriteFile(ts.MkAbs(file), []byte(os.Expand(ts.ReadFile(file), ts.Getenv)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func hold(ts *testscript.TestScript, args []string) error {
	s := scriptOf(ts)
	uid, err := s.uid(args[0])
	if err == nil {
		s.held[strings.Join(args, " ")] = s.World.Hold(uid, runtime.TaskKind(args[1]))
	}
	return err
}

func release(ts *testscript.TestScript, args []string) error {
	held := scriptOf(ts).held
	name := strings.Join(args, " ")
	if held[name] == nil {
		return fmt.Errorf("%s is not held", name)
	}
	held[name]()
	delete(held, name)
	return nil
}

func ignoreShutdown(ts *testscript.TestScript, args []string) error {
	s := scriptOf(ts)
	uid, err := s.uid(args[0])
	if err == nil {
		s.World.SetGuest(uid, fake.Guest{Ignores: true})
	}
	return err
}

// uid returns that of a machine of the namespace.
func (s *script) uid(machine string) (types.UID, error) {
	c, err := install.Client(s.Plane.Config)
	if err != nil {
		return "", err
	}
	vm := &v1alpha1.VirtualMachine{}
	err = c.Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: machine}, vm)
	return vm.UID, err
}

func instance(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] instance UID")
	}
	if _, exists := scriptOf(ts).World.Instance(types.UID(args[0])); exists == neg {
		ts.Fatalf("that there is an instance is %t", exists)
	}
}

func disk(ts *testscript.TestScript, args []string) error {
	disks := scriptOf(ts).World.Disks()
	i := slices.IndexFunc(disks, func(d fake.Disk) bool { return d.Owner == types.UID(args[0]) })
	if i < 0 {
		return errors.New("there is no such disk")
	}
	show(ts, disks[i].ID+"\n", "")
	return nil
}

func manager(ts *testscript.TestScript, args []string) error {
	s := scriptOf(ts)
	switch {
	case args[0] == "stop":
		return s.run("")
	case args[0] == "remove":
		err := s.run("")
		s.running = s.Options.Binary // for the end of the script
		return err
	case args[0] == "start" && len(args) == 1:
		return s.run(s.Options.Binary)
	case args[0] == "start":
		return s.run(ts.MkAbs(args[1]))
	}
	return fmt.Errorf("unknown command %q", args[0])
}
