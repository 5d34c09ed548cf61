package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/fake"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/sim"
)

func newDemoCommand() *cobra.Command {
	var script bool
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show admissions and refusals on a control plane of its own",
		Long: "Starts a Kubernetes control plane on this machine, installs Sallyport and walks through requests that are\n" +
			"admitted and refused, with real kubectl. Needs Go, and a module proxy the first time. Leaves nothing behind.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			d := &demo{out: command.OutOrStdout(), script: script}
			if file, ok := d.out.(*os.File); ok {
				d.colour = term.IsTerminal(int(file.Fd()))
			}
			return d.run(command.Context())
		},
	}
	command.Flags().BoolVar(&script, "script", false, "end after the walk, with a verdict as the exit code")
	return command
}

// newSimulatedManagerCommand is the manager as the demo runs it: with machines that live in the demo's own process.
func newSimulatedManagerCommand() *cobra.Command {
	command := manager.NewCommand(sim.FromEnvironment())
	command.Use, command.Hidden = simulatedManager, true
	return command
}

const simulatedManager = "simulated-manager"

// demo is one run of it.
type demo struct {
	out            io.Writer
	script, colour bool
	plane          *env.ControlPlane
	world          *fake.World
	admitted       int
	refused        int
	wrong          []string
}

// run starts everything, walks, and ends everything, whatever happens in between.
func (d *demo) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "sallyport-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	logs, err := os.Create(filepath.Join(dir, "manager.log"))
	if err != nil {
		return err
	}
	defer logs.Close()
	records := filepath.Join(dir, "decisions.jsonl")
	d.world = fake.New()
	d.world.SetAuto(true)
	machines, err := sim.Serve(d.world)
	if err != nil {
		return err
	}
	defer machines.Close()
	sallyport, err := d.start(ctx, install.Options{
		Command: []string{simulatedManager}, Flags: []string{"--decision-records", records}, Env: machines.Environment("demo"), Logs: logs,
	})
	if d.plane != nil {
		defer func() { err = errors.Join(err, d.plane.Stop()) }()
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sallyport.Remove()) }()
	for _, s := range walk {
		if err := d.step(ctx, s); err != nil {
			return err
		}
	}
	if err := d.verdict(); err != nil || d.script {
		return err
	}
	d.stay(ctx, records, logs.Name())
	return nil
}

func (d *demo) start(ctx context.Context, o install.Options) (*install.Sallyport, error) {
	d.say("Starting a Kubernetes control plane on this machine (etcd, kube-apiserver) ...")
	crds, err := charts.CRDs()
	if err != nil {
		return nil, err
	}
	building := func(format string, args ...any) { d.say("  "+format, args...) }
	d.plane, err = env.Start(ctx, env.Options{CRDs: crds, Logf: building})
	if err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	if o.Binary, err = os.Executable(); err != nil {
		return nil, err
	}
	d.say("Installing Sallyport: custom resources, policies, webhooks ...")
	return install.Start(ctx, d.plane, o)
}

// step is one kubectl with what is to be seen in its output.
type step struct {
	say     string
	args    string
	stdin   string
	refused bool     // by Sallyport
	reads   []string // what a user must read
	quiet   bool     // preparation: only the explanation is shown
	hangs   bool     // from then on, power-ons of web-1 never end by themselves
}

func operationManifest(name, machine, kind string) string {
	return fmt.Sprintf(`apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachineOperation
metadata: {name: %s}
spec: {type: %s, virtualMachineName: %s}
`, name, kind, machine)
}

func machineManifest(name, runPolicy string) string {
	return fmt.Sprintf(`apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: %s}
spec: {runPolicy: %s, runtime: {pod: {}}}
`, name, runPolicy)
}

// until waits until an object is in that phase.
func until(object, phase string) step {
	return step{quiet: true, args: fmt.Sprintf("wait %s --for=jsonpath={.status.phase}=%s --timeout=60s", object, phase)}
}

// walk is the demo.
var walk = []step{
	{say: "Two machines, simulated: web-1 is started and stopped by hand, db-1 is to run always.",
		args: "create -f -", stdin: machineManifest("web-1", "Manual"), reads: []string{"created"}},
	{args: "create -f -", stdin: machineManifest("db-1", "AlwaysOn"), reads: []string{"created"}},
	until("svm/web-1", "Stopped"), until("svm/db-1", "Running"),
	{hangs: true, quiet: true, args: "get svm web-1"},
	{say: "web-1 is stopped. A Start is admitted.",
		args: "create -f -", stdin: operationManifest("start-1", "web-1", "Start"), reads: []string{"created"}},
	until("svmop/start-1", "InProgress"),
	{say: "Starting takes long. Meanwhile somebody starts it again. That is refused, with what blocks and what would be accepted.",
		args: "create -f -", stdin: operationManifest("start-2", "web-1", "Start"), refused: true,
		reads: []string{"start-1", "does not yield to Start", "accepted now: Stop, forced Stop"}},
	{say: "So they stop it: a Stop takes the place of a Start that is unfinished.",
		args: "create -f -", stdin: operationManifest("stop-1", "web-1", "Stop"), reads: []string{"created"}},
	{say: "db-1 has the run policy AlwaysOn, so nobody may stop it by hand. A server-side dry-run says so too.",
		args: "create --dry-run=server -f -", stdin: operationManifest("stop-2", "db-1", "Stop"), refused: true,
		reads: []string{"run policy AlwaysOn", "forbids Stop", "Restart"}},
	{say: "And a machine that does not exist cannot be started.",
		args: "create -f -", stdin: operationManifest("start-3", "web-9", "Start"), refused: true,
		reads: []string{"spec.virtualMachineName", "web-9 does not exist"}},
	until("svmop/stop-1", "Completed"),
	{say: "What was admitted and what became of it, and who asked: stamped by the webhook, whatever a client writes.",
		args:  "get svmop -o custom-columns=NAME:.metadata.name,TYPE:.spec.type,PHASE:.status.phase,SUPERSEDED-BY:.status.supersededBy.name,ASKED-BY:.spec.requestedBy.username",
		reads: []string{"start-1", "stop-1", "Completed"}},
}

func (d *demo) step(ctx context.Context, s step) error {
	args := strings.Fields(s.args)
	if !s.quiet {
		if s.say != "" {
			d.say("\n%s", s.say)
		}
		d.say("%s", d.bold("$ kubectl "+s.args))
		for line := range strings.Lines(s.stdin) {
			fmt.Fprint(d.out, "    "+line)
		}
	}
	if s.hangs {
		if err := d.hang(ctx, "web-1"); err != nil {
			return err
		}
	}
	out, errs, code := d.plane.KubectlAs(ctx, d.plane.Kubeconfig(), strings.NewReader(s.stdin), args...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.quiet && code == 0 {
		return nil
	}
	fmt.Fprint(d.out, out+errs)
	d.judge(s, out+errs, code)
	return nil
}

// hang has the machine's power-ons never end, but for being cancelled.
func (d *demo) hang(ctx context.Context, machine string) error {
	uid, errs, code := d.plane.Kubectl(ctx, "get", "svm", machine, "-o", "jsonpath={.metadata.uid}")
	if code != 0 {
		return fmt.Errorf("finding machine %s: %s", machine, errs)
	}
	d.world.Hold(types.UID(uid), runtime.TaskPowerOn)
	return nil
}

// judge holds what happened against what was to happen.
func (d *demo) judge(s step, text string, code int) {
	if (code != 0) != s.refused {
		d.wrong = append(d.wrong, fmt.Sprintf("kubectl %s: exit code %d", s.args, code))
	}
	for _, want := range s.reads {
		if !strings.Contains(text, want) {
			d.wrong = append(d.wrong, fmt.Sprintf("kubectl %s: %q is not in its output", s.args, want))
		}
	}
	switch {
	case s.refused:
		d.refused++
	case strings.Contains(s.stdin, "VirtualMachineOperation"):
		d.admitted++
	}
}

func (d *demo) verdict() error {
	if len(d.wrong) > 0 {
		return &verdictError{"\nDEMO FAILED:\n  " + strings.Join(d.wrong, "\n  ")}
	}
	d.say("\n%s", d.bold(fmt.Sprintf("DEMO OK: %d operations admitted, %d refused, each as it should be.", d.admitted, d.refused)))
	return nil
}

// stay keeps everything up until Ctrl-C.
func (d *demo) stay(ctx context.Context, records, logs string) {
	d.say(`
Sallyport stays up for you to try. In another terminal:

  export KUBECONFIG=%s
  alias kubectl=%s

  kubectl get svm,svmop
  kubectl explain svmop.spec
  kubectl create -f - <<< '{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachineOperation",
    "metadata": {"name": "mine"}, "spec": {"type": "Restart", "virtualMachineName": "web-1"}}'

Every decision with all that it was made from:  %s
What the manager logs:                          %s
Which operation takes the place of which:       go run ./cmd/sallyport matrix

Ctrl-C ends and removes everything.`, d.plane.Kubeconfig(), d.plane.Assets.Kubectl, records, logs)
	<-ctx.Done()
	d.say("\nEnding ...")
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) bold(text string) string {
	if !d.colour {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}
