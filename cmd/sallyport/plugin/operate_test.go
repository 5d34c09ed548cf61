package plugin

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/test/support/env/install"
)

// The longest names that the API server takes. It cuts what it generates a name from, and dots do not end up before the type.
func TestLongNames(t *testing.T) {
	tm := newTeam(t)
	long := strings.Repeat("a", 250)
	tm.machine(long, "Running")
	r := tm.sallyport("stop "+long, 0)
	if !regexp.MustCompile(`/a{52}-stop-[a-z0-9]{5} created\n$`).MatchString(r.stdout) || r.stderr != "" {
		t.Errorf("the user reads %q and %q", r.stdout, r.stderr)
	}
	if got := tm.get("svmop/"+tm.created(r), ".spec.virtualMachineName"); got != long {
		t.Errorf("it is for %s", got)
	}
	tm.sallyport("why "+long, 0, "Stop "+strings.Repeat("a", 52)+"-stop-")
	dotted := cli.NewOperation("ns", strings.Repeat("a", 51)+"."+strings.Repeat("b", 100), v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop})
	if got := dotted.GenerateName; got != strings.Repeat("a", 51)+"-stop-" {
		t.Errorf("the name begins with %s", got)
	}
}

// Every flag, as it comes out of the API server.
func TestFlagsGoIntoTheSpec(t *testing.T) {
	tm := newTeam(t)
	tm.must(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-3"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
		"create", "-f", "-")
	tm.atTheEnd("delete", "node", "node-3")
	for line, want := range map[string]v1alpha1.VirtualMachineOperationSpec{
		"stop web-1 --force --deadline 5m --ttl 0s": {Type: "Stop", Force: true, ActiveDeadlineSeconds: new(int32(300)), TTLSecondsAfterFinished: new(int32(0))},
		"restart svm/web-1 --ttl 2h":                {Type: "Restart", TTLSecondsAfterFinished: new(int32(7200))},
		"migrate virtualmachine/web-1 --to node-3":  {Type: "Migrate", Migrate: &v1alpha1.MigrateTarget{NodeName: "node-3"}},
		"migrate web-1 --node-selector a=b,c=d": {Type: "Migrate",
			Migrate: &v1alpha1.MigrateTarget{NodeSelector: map[string]v1alpha1.LabelValue{"a": "b", "c": "d"}}},
		"migrate web-1": {Type: "Migrate"},
		"evict virtualmachines.sallyport.dev/web-1 --deadline 1h": {Type: "Evict", ActiveDeadlineSeconds: new(int32(3600))},
	} {
		t.Run(strings.Fields(line)[0], func(t *testing.T) {
			tm := newTeam(t)
			tm.machine("web-1", "Running")
			if want.VirtualMachineName = "web-1"; want.TTLSecondsAfterFinished == nil {
				want.TTLSecondsAfterFinished = new(int32(86400)) // the API server's default
			}
			var got v1alpha1.VirtualMachineOperation
			if err := json.Unmarshal([]byte(tm.sallyport(line+" -o json", 0).stdout), &got); err != nil {
				t.Fatal(err)
			}
			if got.Kind != "VirtualMachineOperation" || got.Spec.RequestedBy == nil {
				t.Errorf("printed was %v, without what the API server made of it", got)
			}
			stamps := cmpopts.IgnoreFields(want, "RequestedBy", "RequestedAt", "VirtualMachineUID")
			if diff := cmp.Diff(want, got.Spec, stamps); diff != "" {
				t.Errorf("%s (-want +got):\n%s", line, diff)
			}
		})
	}
	tm.machine("web-1", "Running")
	if r := tm.sallyport("stop web-1 -o name", 0); !regexp.MustCompile(`^virtualmachineoperation\.sallyport\.dev/web-1-stop-.....\n$`).MatchString(r.stdout) {
		t.Errorf("-o name printed %q", r.stdout)
	}
}

// A refusal is the API server's, whole; the command goes on with the other machines, and the exit code shows it.
func TestRefusals(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.machine("db-1", "Running", `, "runPolicy": "AlwaysOn"`)
	r := tm.sallyport("stop nobody web-1 db-1", 1, "/web-1-stop-",
		`Error from server (VirtualMachineNotFound): Stop of nobody: admission webhook`,
		`[operations-applicability/VirtualMachineNotFound] spec.virtualMachineName: VirtualMachine nobody does not exist`,
		`Error from server (RunPolicyForbids): Stop of db-1: `, "stop is not allowed because its run policy is AlwaysOn; allowed in phase Running: restart, restart --force",
		"\nTo override operations-applicability once (recorded as an event): --override \"operations-applicability: REASON\"\n")
	if strings.Count(r.stdout, "\n") != 1 || strings.Count(r.stderr, "\n") != 3 {
		t.Errorf("the user reads too much:\n%s%s", r.stdout, r.stderr)
	}
	tm.sallyport("start web-1", 1, "Error from server (Conflict): Start of web-1: ",
		"\n[operations-supersede/OperationInProgress] VirtualMachine web-1: start is not allowed because Stop web-1-stop-",
		"[operations-applicability/PhaseForbids] VirtualMachine web-1: start is not allowed because its phase is Running",
		"\nAllowed now by all policies: stop --force, restart --force\n")
	tm.sallyport("start web-1 --force", 1, "spec.force is not allowed with type Start: there is no forced way to power on")
	tm.sallyport("stop web-1 --deadline 9000h", 1, "spec.activeDeadlineSeconds")
	if got := strings.Fields(tm.must("", "get", "svmop", "-o", "name")); len(got) != 1 {
		t.Errorf("there are the operations %v, want one", got)
	}
}

func TestDryRunsLeaveNothing(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.sallyport("stop web-1 --dry-run=server", 0, "/web-1-stop-", " created (server dry run)\n")
	tm.sallyport("start web-1 --dry-run=server", 1, "PhaseForbids")
	tm.sallyport("start web-1 --dry-run=client", 0, "/web-1-start- created (dry run)\n")
	tm.sallyport("start web-1 --dry-run=client -o yaml", 0, "generateName: web-1-start-", "type: Start")
	if got := tm.must("", "get", "svmop", "-o", "name"); got != "" {
		t.Errorf("left is %s", got)
	}
}

// What the plugin refuses by itself is only how it is called.
func TestCommandLinesThatSayNothing(t *testing.T) {
	tm := newTeam(t)
	for line, text := range map[string]string{
		"stop svmop/web-1":                   "svmop/web-1 is not a VirtualMachine",
		"stop svm/":                          "invalid VirtualMachine svm/: specify exactly one name",
		"stop web-1 --dry-run=maybe":         `invalid argument "maybe" for "--dry-run" flag: must be none, server or client`,
		"stop web-1 --wait --dry-run=server": "cannot set --wait and --dry-run=server at the same time",
		"stop web-1 --timeout 1m":            "--timeout requires --wait",
		"stop web-1 --wait --timeout 0s":     "greater than 0",
		"stop web-1 --deadline 1500ms":       "whole seconds",
		"stop web-1 --ttl -1s":               "whole seconds",
		"stop web-1 -o table":                `"table"`,
		"stop web-1 --now":                   "unknown flag: --now",
		"halt web-1":                         `unknown command "halt"`,
		"why":                                "specify one object, such as svm web-1",
		"why svm":                            "specify a VirtualMachine, such as svm/web-1",
		"why svm/web-1 web-2":                "already contains a name",
		"why deployment web-1":               `Error from server (NotFound): deployments.apps "web-1" not found`,
		"why pod/":                           "invalid argument pod/: specify exactly one object",
		"why gadget web-1":                   `error: the server doesn't have a resource type "gadget"`,
		"why rego":                           "specify a RegoPolicy, such as rego/defaults",
		`stop web-1 --override never`:        `invalid --override "never": must be "POLICY: REASON"`,
		`stop web-1 --override policy:`:      `must be "POLICY: REASON"`,
		"why svm web-1 -o xml":               `invalid argument "xml" for "-o, --output" flag: must be json or yaml`,
		"stop web-1 --context no":            `context "no" does not exist`,
		"stop web-1 -s 127.0.0.1:1":          "Unable to connect to the server: Stop of web-1",
	} {
		tm.sallyport(line, 1, text)
	}
}

// A cluster without the kinds is told as such.
func TestWithoutSallyport(t *testing.T) {
	tm := newTeam(t)
	tm.sallyport("stop web-1 -s "+started.plane.Config.Host+"/nowhere", 1, "Check whether Sallyport is installed")
}

func TestCompletionOffersNames(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.machine("web-2", "Running")
	for line, want := range map[string]string{
		"stop":       "web-1 web-2",
		"stop web-2": "web-1",
		"why":        "svm svmop svmpool",
		"why svm":    "web-1 web-2",
		"why svmop":  "",
	} {
		out := tm.completed(append(append([]string{"--namespace", tm.namespace}, strings.Fields(line)...), ""), false)
		if got, _, _ := strings.Cut(out, ":"); strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
}

func TestVersion(t *testing.T) {
	tm := newTeam(t)
	r := tm.sallyport("version", 0, "Client Version: ", "Replica Version: ", " ("+install.Namespace+"/sallyport-replica-")
	if strings.Contains(r.stdout, "unknown") {
		t.Errorf("a replica does not say which version it is: %s", r.stdout)
	}
	var known versions
	if err := json.Unmarshal([]byte(tm.sallyport("version -o json", 0).stdout), &known); err != nil || known.Client.Platform == "" || len(known.Replicas) == 0 {
		t.Errorf("as JSON it is %+v, %v", known, err)
	}
	if err := yaml.Unmarshal([]byte(tm.sallyport("version --client -o yaml", 0).stdout), &known); err != nil || known.Client.GoVersion == "" {
		t.Errorf("as YAML it is %+v, %v", known, err)
	}
	tm.sallyport("version -o xml", 1, `invalid argument "xml" for "-o, --output" flag: must be json or yaml`)
	streams, _, out, errs := genericiooptions.NewTestIOStreams()
	if code := run(t.Context(), cli.New(streams), []string{"version", "--kubeconfig=/nowhere"}); code != 1 || !strings.HasPrefix(out.String(), "Client Version: ") {
		t.Errorf("without a cluster: exit %d, %s%s", code, out, errs)
	}
}
