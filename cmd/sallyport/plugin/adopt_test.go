package plugin

import (
	"fmt"
	"strings"
	"testing"
)

// kubeVirt serves a definition of KubeVirt's VirtualMachines.
func (tm *team) kubeVirt() {
	tm.Helper()
	tm.must(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "virtualmachines.kubevirt.io"}, "spec": {
		"group": "kubevirt.io", "scope": "Namespaced", "names": {"kind": "VirtualMachine", "plural": "virtualmachines", "singular": "virtualmachine", "shortNames": ["vm"]},
		"versions": [{"name": "v1", "served": true, "storage": true,
			"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`, "create", "-f", "-")
	tm.must("", "wait", "--for=condition=Established", "crd/virtualmachines.kubevirt.io")
}

// theirs makes a VirtualMachine of KubeVirt.
func (tm *team) theirs(name, metadata, spec string) {
	tm.Helper()
	tm.must(fmt.Sprintf(`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": %q%s}, "spec": {%s}}`, name, metadata, spec), "create", "-f", "-")
}

// Machines of KubeVirt are adopted with the run policy that their run strategy stands for; one that cannot be adopted does not stop the others.
func TestAdopt(t *testing.T) {
	tm := newTeam(t)
	tm.sallyport("adopt --all", 1, `the server doesn't have a resource type "virtualmachines"`)
	tm.kubeVirt()
	tm.sallyport("adopt --all", 0, "No resources found in "+tm.namespace+" namespace.")
	for name, spec := range map[string]string{
		"always": `"runStrategy": "Always"`, "halted": `"runStrategy": "Halted"`, "older": `"running": true`,
		"rerun": `"runStrategy": "RerunOnFailure"`, "taken": `"runStrategy": "Manual"`,
	} {
		tm.theirs(name, "", spec)
	}
	tm.theirs("pooled", `, "ownerReferences": [{"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "ci", "uid": "u-1", "controller": true}]`, "")
	tm.theirs("restored", `, "labels": {"sallyport.dev/virtual-machine-uid": "u-2"}`, "")
	tm.theirs("ending", `, "finalizers": ["example.com/hold"]`, "")
	tm.must("", "delete", "vm", "ending", "--wait=false")
	tm.machine("taken", "Running")

	wanted := []string{"always AlwaysOnUnlessStoppedManually", "halted AlwaysOnUnlessStoppedManually", "older AlwaysOnUnlessStoppedManually", "rerun Manual"}
	manifest := `apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata:
  name: rerun
  namespace: ` + tm.namespace + `
spec:
  runPolicy: Manual
  runtime:
    kubevirt:
      name: rerun
`
	if r := tm.sallyport("adopt rerun --dry-run=client -o yaml", 0); r.stdout != manifest {
		t.Errorf("printed was\n%swant\n%s", r.stdout, manifest)
	}
	tm.sallyport("adopt --all --dry-run=server", 1, "virtualmachine.sallyport.dev/rerun created (server dry run)\n")
	adopted := func() []string {
		return strings.Fields(strings.ReplaceAll(tm.must("", "get", "svm", "-o",
			`jsonpath={range .items[?(@.spec.runtime.kubevirt)]}{.spec.runtime.kubevirt.name} {.spec.runPolicy}{"\n"}{end}`), " ", "="))
	}
	if got := adopted(); len(got) > 0 {
		t.Errorf("a dry run adopted %q", got)
	}
	all := []string{"pooled skipped: VirtualMachinePool ci controls it\n", "restored skipped: its label sallyport.dev/virtual-machine-uid belongs to",
		"ending skipped: it is being deleted\n", "error: adopting taken: VirtualMachine taken of Sallyport exists and is another machine"}
	tm.sallyport("adopt --all", 1, append(all, "virtualmachine.sallyport.dev/always created\n")...)
	if got, want := strings.Join(adopted(), " "), strings.Join(wanted, ", "); got != strings.ReplaceAll(strings.ReplaceAll(want, " ", "="), ",=", " ") {
		t.Errorf("adopted are %s, want %s", got, want)
	}
	tm.sallyport("adopt --all", 1, append(all, "rerun skipped: it belongs to VirtualMachine rerun of Sallyport\n")...)
	for line, want := range map[string]string{"adopt rerun ": "pooled", "stop ": "taken"} {
		got := tm.completed(append([]string{"--namespace", tm.namespace}, strings.Split(line, " ")...), false)
		if only := !strings.Contains(got, "pooled") || want == "pooled"; !strings.Contains(got, want) || !only {
			t.Errorf("after %q offered are\n%s", line, got)
		}
	}
	tm.sallyport("adopt rerun halted", 0, "rerun skipped: it belongs")
	tm.sallyport("adopt pooled missing", 1, "adopting pooled: VirtualMachinePool ci controls it", `adopting missing: virtualmachines.kubevirt.io "missing" not found`)
	tm.sallyport("adopt", 1, "by name, -l or --all", "--help")
	tm.sallyport("adopt web-1 --all", 1, "name cannot be provided when --all is specified")
}
