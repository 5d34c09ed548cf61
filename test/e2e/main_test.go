// Package e2e uses Sallyport as people do: real kubectl, a real API server, and the manager as a process of its own. Only the
// machines are simulated.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/double/fake"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/sim"
	"sallyport.dev/sallyport/test/step"
	"sallyport.dev/sallyport/webhooks/record"
)

// stack is what all tests of this package share.
var stack struct {
	plane     *env.ControlPlane
	sallyport *install.Sallyport
	options   install.Options
	audit     string
	world     *fake.World
	simulator *sim.Server
	records   install.Log
	logs      install.Log
	// installing is how many decisions were made before all policies of the release were there.
	installing int
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sallyport-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = start(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err, stack.logs.String())
		return 1
	}
	code := m.Run()
	if err := errors.Join(stack.sallyport.Remove(), stack.simulator.Close(), stack.plane.Stop(), replays(context.Background())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func start(ctx context.Context, dir string) error {
	stack.world = fake.New()
	stack.world.SetAuto(true)
	var err error
	if stack.simulator, err = sim.Serve(stack.world); err != nil {
		return err
	}
	stack.options = install.Options{
		Env:     stack.simulator.Environment("manager"),
		Records: &stack.records, Logs: &stack.logs,
		Flags: []string{"--poll-interval", "200ms"},
	}
	if stack.options.Binary, err = install.Build(ctx, dir, "sallyport.dev/sallyport/test/sim/manager"); err != nil {
		return err
	}
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	stack.audit = filepath.Join(dir, "audit.log")
	// Nodes are as tests say that they are: nobody finds out that they have no kubelet.
	alive := map[string]string{"controllers": "*,-node-lifecycle-controller"}
	options := env.Options{ControllerManager: true, ControllerManagerFlags: alive, CRDs: crds, AuditLog: stack.audit}
	if onOld() {
		// A controller manager must not be newer than the API server.
		options.ControllerManager = false
		if options.APIServer, err = env.OldAPIServer(ctx, options.Logf, true); err != nil {
			return err
		}
	}
	if stack.plane, err = env.Start(ctx, options); err != nil {
		return err
	}
	stack.sallyport, err = install.Start(ctx, stack.plane, stack.options)
	stack.installing = strings.Count(stack.records.String(), "\n")
	return err
}

// awaitRecords gives the decision records about a namespace, oldest first, once they are as wanted: a record is written just
// after the answer.
func awaitRecords(t *testing.T, namespace, what string, wanted func([]record.Record) bool) []record.Record {
	t.Helper()
	var found []record.Record
	err := step.Await(t.Context(), func(context.Context) (bool, error) {
		var err error
		found, err = recordsOf(namespace)
		return err == nil && wanted(found), err
	})
	if err != nil {
		t.Fatalf("waiting for %s among %d decision records: %v", what, len(found), err)
	}
	return found
}

func recordsOf(namespace string) ([]record.Record, error) {
	var found []record.Record
	for line := range strings.Lines(stack.records.String()) {
		var record record.Record
		if !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			return nil, fmt.Errorf("stdout holds a line that is no decision record: %q: %w", line, err)
		}
		if request, ok := record.Request.(map[string]any); ok && request["namespace"] == namespace {
			found = append(found, record)
		}
	}
	return found, nil
}

var teams atomic.Int32

// team is a namespace of one test's own.
type team struct {
	step.T
	namespace string
}

func newTeam(t *testing.T) *team {
	t.Helper()
	tm := &team{T: step.T{T: t}, namespace: fmt.Sprintf("team-%d", teams.Add(1))}
	tm.must("", "create", "namespace", tm.namespace)
	return tm
}

// result of one kubectl.
type result struct {
	stdout, stderr string
	code           int
}

// kubectl runs it in the team's namespace, with a text as its standard input.
func (tm *team) kubectl(stdin string, args ...string) result {
	tm.Helper()
	args = append([]string{"--namespace", tm.namespace}, args...)
	out, errs, code := stack.plane.KubectlAs(tm.Context(), stack.plane.Kubeconfig(), strings.NewReader(stdin), args...)
	return result{out, errs, code}
}

// must is kubectl with success.
func (tm *team) must(stdin string, args ...string) string {
	tm.Helper()
	r := tm.kubectl(stdin, args...)
	if r.code != 0 {
		tm.Fatalf("kubectl %s: exit %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// refused is kubectl that must fail with all of the texts in what a user reads.
func (tm *team) refused(stdin string, args []string, texts ...string) {
	tm.Helper()
	r := tm.kubectl(stdin, args...)
	if r.code == 0 {
		tm.Errorf("kubectl %s was admitted: %s", strings.Join(args, " "), r.stdout)
		return
	}
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			tm.Errorf("kubectl %s: the user reads\n%s\nwithout %q", strings.Join(args, " "), r.stderr, text)
		}
	}
}

// get gives a field of an object by JSONPath.
func (tm *team) get(object, path string) string {
	tm.Helper()
	return tm.must("", "get", object, "-o", "jsonpath={"+path+"}")
}

// machine makes a VirtualMachine, and waits until it is seen in that phase: Stopped, or Running.
func (tm *team) machine(name, phase string, spec ...string) {
	tm.Helper()
	if phase == "Stopped" {
		spec = append(spec, `, "runPolicy": "Manual"`)
	}
	tm.must(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": %q},
		"spec": {"runtime": {"pod": {}}%s}}`, name, strings.Join(spec, "")), "create", "-f", "-")
	tm.await("svm/"+name, ".status.conditions[?(@.type=='Ready')].status", "True")
	tm.await("svm/"+name, ".status.phase", phase)
}

// await waits until a field of an object has that value.
func (tm *team) await(object, path, value string) {
	tm.Helper()
	tm.must("", "wait", object, "--for=jsonpath={"+path+"}="+value, "--timeout=3m")
}

// uid is what the world knows a machine by.
func (tm *team) uid(name string) types.UID {
	tm.Helper()
	return types.UID(tm.get("svm/"+name, ".metadata.uid"))
}

// status writes a status as a reconciler would.
func (tm *team) status(object, status string) {
	tm.Helper()
	tm.must("", "patch", object, "--subresource=status", "--type=merge", "-p", `{"status": `+status+`}`)
}

// operation is the manifest of one.
func operation(name, machine, kind string, spec ...string) string {
	metadata := fmt.Sprintf(`"name": %q`, name)
	if strings.HasSuffix(name, "-") {
		metadata = fmt.Sprintf(`"generateName": %q`, name)
	}
	return fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachineOperation", "metadata": {%s},
		"spec": {"virtualMachineName": %q, "type": %q%s}}`, metadata, machine, kind, strings.Join(spec, ""))
}
