package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// webs makes web-1 and web-2 with the label app=web, and db-1, which may not be stopped.
func (tm *team) webs() {
	tm.Helper()
	tm.machine("db-1", "Running", `, "runPolicy": "AlwaysOn"`)
	tm.machine("web-1", "Running")
	tm.machine("web-2", "Running")
	tm.must("", "label", "svm/web-1", "svm/web-2", "app=web")
}

// machinesOf are those about which operations were printed.
func machinesOf(stdout string) string {
	var names []string
	for line := range strings.Lines(stdout) {
		_, name, _ := strings.Cut(line, "virtualmachineoperation.sallyport.dev/")
		parts := strings.SplitN(name, "-", 3)
		names = append(names, strings.Join(parts[:min(2, len(parts))], "-"))
	}
	return strings.Join(names, " ")
}

// Machines are selected by labels or by fields, or all of the namespace are; after a refusal the command goes on with the others.
func TestOperationsOnSelectedMachines(t *testing.T) {
	tm := newTeam(t)
	tm.webs()
	tm.status("svm/web-2", `{"phase": "Stopped"}`)
	for _, tc := range []struct {
		line string
		code int
		want string
	}{
		{"start -l app=web,app!=db --dry-run=server", 1, "web-2"}, // web-1 is on
		{"stop --all --dry-run=client", 0, "db-1 web-1 web-2"},
		{"stop -l app=web --dry-run=client", 0, "web-1 web-2"},
		{"stop -l app --field-selector status.phase=Running --dry-run=server", 0, "web-1"},
		{"start --field-selector status.phase=Stopped", 0, "web-2"},
		{"stop --all", 1, "web-1 web-2"},
		{"stop -l app=none", 0, ""},
	} {
		r := tm.sallyport(tc.line, tc.code)
		if got := machinesOf(r.stdout); got != tc.want {
			t.Errorf("%s: operations on %q were created, want %q", tc.line, got, tc.want)
		}
		nothing := "No resources found in " + tm.namespace + " namespace.\n"
		if got := strings.Contains(r.stderr, nothing); got != (tc.want == "") {
			t.Errorf("%s: the user reads %q", tc.line, r.stderr)
		}
	}
	if r := tm.kubectl("", "sallyport", "stop", "-l", ""); r.code != 1 || !strings.Contains(r.stderr, "specify at least one VirtualMachine") {
		t.Errorf("an empty selector: exit %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

// Nobody who is in a hurry gets both, or everything for a mistake; what a command line lacks is said before a cluster is asked.
func TestCommandLinesWithoutACluster(t *testing.T) {
	for line, text := range map[string]string{
		"stop":                                        "specify at least one VirtualMachine by name, -l or --all",
		"stop --selector=":                            "specify at least one VirtualMachine",
		"stop web-1 --all":                            "name cannot be provided when --all is specified",
		"stop web-1 -l app=web":                       "name cannot be provided when a selector is specified",
		"stop --all -l app=web":                       "cannot set --all and a selector at the same time",
		"stop -l app=(":                               `--selector "app=("`,
		"evict --field-selector phase":                `--field-selector "phase"`,
		"override a svm --reason why":                 "or KIND with -l or --all",
		"override a svm web-1 --all --reason why":     "name cannot be provided when --all is specified",
		"override a svm/web-1 -l app=web --reason w":  "name cannot be provided when a selector is specified",
		"explain svm":                                 "specify at least one svm by name, -l or --all",
		"explain svm web-1 -l app=web":                "name cannot be provided when a selector is specified",
		"explain svm -l app=web -f there.yaml":        "cannot set -f and KIND NAME at the same time",
		"audit owner -l app=web":                      "name cannot be provided when a selector is specified",
		"migrate web-1 --to esx-1 --node-selector a=": "cannot set --to and --node-selector at the same time",
		"policies a b":                                "specify at most one NAME",
		"policies svm/a":                              "svm/a is not a RegoPolicy",
		"policies rego/":                              "is not a RegoPolicy",
		"policies -o table":                           `"table"`,
		"policies reset":                              "specify at least one policy, or --all",
		"policies reset a --all":                      "name cannot be provided when --all is specified",
		"policies reset a --dry-run=no":               `invalid argument "no" for "--dry-run" flag: must be none, server or client`,
		"policies reset svm/a":                        "svm/a is not a RegoPolicy",
		"release":                                     "--all is required: release stops Sallyport",
		"release --all web-1":                         `unknown command "web-1"`,
		"release --all --dry-run=no":                  `invalid argument "no" for "--dry-run" flag: must be none, server or client`,
		"release --all --timeout=-1s":                 "--timeout must be greater than 0",
	} {
		streams, _, out, errs := genericiooptions.NewTestIOStreams()
		if code := run(t.Context(), cli.New(streams), strings.Fields(line)); code == 0 || !strings.Contains(errs.String(), text) {
			t.Errorf("%s: exit %d, the user reads %q, without %q", line, code, out.String()+errs.String(), text)
		}
	}
}

// An override is written into each of them; where that is refused the others are annotated all the same.
func TestOverrideOfSelectedObjects(t *testing.T) {
	tm := newTeam(t)
	tm.webs()
	user := tm.namespace + "-user"
	tm.must("", "create", "role", user, "--verb=get,list", "--resource=virtualmachines.sallyport.dev")
	tm.must("", "create", "rolebinding", user, "--role="+user, "--user="+user)
	tm.must("", "create", "role", user+"-2", "--verb=patch", "--resource=virtualmachines.sallyport.dev", "--resource-name=web-2")
	tm.must("", "create", "rolebinding", user+"-2", "--role="+user+"-2", "--user="+user)
	tm.mayOverride(user)
	command := []string{"sallyport", "override", "deletion-protected", "svm", "--reason", "ticket 42"}
	var r result
	tm.Eventually("the rights are known", func() bool {
		r = tm.kubectl("", append(command, "-l", "app=web", "--as", user)...)
		return strings.Contains(r.stdout, "web-2 annotated")
	})
	tm.reads("override -l", r, 1, "Error from server (Forbidden): annotating virtualmachines.sallyport.dev/web-1: ", "virtualmachines.sallyport.dev/web-2 annotated: ")
	tm.reads("override --all", tm.kubectl("", append(command, "--all")...), 0, "/db-1 annotated", "/web-1 annotated", "/web-2 annotated")
	tm.reads("override -l", tm.kubectl("", append(command, "-l", "app=none")...), 0, "No resources found in "+tm.namespace+" namespace.\n")
}

func TestExplanationOfSelectedObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	tm := newTeam(t)
	tm.webs()
	r := tm.sallyport("explain svm -l app=web --operation DELETE", 0, "virtualmachines.sallyport.dev web-1 in namespace", "virtualmachines.sallyport.dev web-2 in namespace")
	if strings.Contains(r.stdout, "db-1") {
		t.Errorf("explained is what was not chosen:\n%s", r.stdout)
	}
	tm.sallyport("explain svm -l app=none", 0, "No resources found in "+tm.namespace+" namespace.\n")
	tm.sallyport("audit -l app=none", 0, "No resources found\n")
}

// A dry run of the client says of which machines it is, although nobody has named the operations.
func TestClientDryRunNamesMachines(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{
		"":         "virtualmachineoperation.sallyport.dev/web-1-stop- created (dry run)\nvirtualmachineoperation.sallyport.dev/web-2-stop- created (dry run)\n",
		" -o name": "virtualmachineoperation.sallyport.dev/web-1-stop-\nvirtualmachineoperation.sallyport.dev/web-2-stop-\n",
		" -o jsonpath={.metadata.generateName},{.metadata.name}": "web-1-stop-,web-2-stop-,",
	} {
		streams, _, out, errs := genericiooptions.NewTestIOStreams()
		line := "stop web-1 web-2 --dry-run=client --kubeconfig " + config + format
		if code := run(t.Context(), cli.New(streams), strings.Fields(line)); code != 0 || out.String() != want {
			t.Errorf("%s: exit %d, %q, %s, want %q", line, code, out, errs, want)
		}
	}
}
