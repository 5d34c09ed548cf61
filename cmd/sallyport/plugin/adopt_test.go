package plugin

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/double/vcsim"
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
	remove := "To adopt it, remove the label: kubectl label virtualmachines.kubevirt.io restored -n " + tm.namespace + " sallyport.dev/virtual-machine-uid-\n"
	all := []string{"pooled skipped: VirtualMachinePool ci controls it\n",
		"restored skipped: its label sallyport.dev/virtual-machine-uid is of a VirtualMachine that does not exist in this namespace. " + remove,
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
	tm.sallyport("adopt restored", 1, "error: adopting restored: its label sallyport.dev/virtual-machine-uid is of a VirtualMachine that does not exist", remove)
	tm.sallyport("adopt", 1, "by name, -l or --all", "--help")
	tm.sallyport("adopt web-1 --all", 1, "name cannot be provided when --all is specified")
	t.Run("a clone", adoptAClone) // here because the definition of KubeVirt's VirtualMachines is for all namespaces
	t.Run("disks", adoptDisks)
	t.Run("labels", adoptLabels)
	t.Run("observed at first", adoptObserved)
}

// A clone has the label of the machine that it is a copy of: it is no machine of Sallyport, and the user reads how it becomes one.
func adoptAClone(t *testing.T) {
	tm := newTeam(t)
	tm.theirs("golden", "", `"runStrategy": "Halted"`)
	tm.sallyport("adopt golden", 0)
	label := `, "labels": {"sallyport.dev/virtual-machine-uid": "` + tm.get("svm/golden", ".metadata.uid") + `"}`
	tm.theirs("copy", label, `"runStrategy": "Halted"`)
	tm.status("svm/golden", `{"instanceID": "golden"}`)
	told := "its label sallyport.dev/virtual-machine-uid is of VirtualMachine golden, whose machine is golden, and was copied, as by a clone. " +
		"To adopt it, remove the label: kubectl label virtualmachines.kubevirt.io copy -n " + tm.namespace + " sallyport.dev/virtual-machine-uid-\n"
	tm.sallyport("adopt --all", 0, "copy skipped: "+told, "golden skipped: it belongs to VirtualMachine golden")
	tm.sallyport("adopt copy", 1, "error: adopting copy: "+told)
	tm.must("", "label", "virtualmachines.kubevirt.io", "copy", "sallyport.dev/virtual-machine-uid-")
	tm.sallyport("adopt copy", 0, "virtualmachine.sallyport.dev/copy created")
}

// The VirtualDisks that a machine has stay attached to it: those whose claim it uses and that no other VirtualMachine has.
func adoptDisks(t *testing.T) {
	tm := newTeam(t)
	tm.machine("other", "Running")
	for name, status := range map[string]string{
		"data":     `{"diskID": "disk-1"}`,
		"released": `{"diskID": "disk-2", "attachedTo": {"name": "db", "uid": "u-1", "since": "2026-01-01T00:00:00.000000Z"}}`,
		"taken":    `{"diskID": "disk-3", "attachedTo": {"name": "other", "uid": "` + tm.get("svm/other", ".metadata.uid") + `", "since": "2026-01-01T00:00:00.000000Z"}}`,
		"new":      `{}`,
	} {
		tm.must(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk", "metadata": {"name": "`+name+`"}, "spec": {"size": "1Gi", "runtime": {"kubevirt": {}}}}`, "create", "-f", "-")
		tm.status("svd/"+name, status)
	}
	volume := func(name, source string) string { return `{"name": "` + name + `", ` + source + `}` }
	tm.theirs("db", "", `"runStrategy": "Always", "template": {"spec": {"volumes": [`+strings.Join([]string{
		volume("root", `"containerDisk": {"image": "debian:12"}`), volume("disk-0", `"persistentVolumeClaim": {"claimName": "data"}`),
		volume("a", `"persistentVolumeClaim": {"claimName": "disk-1"}`), volume("b", `"dataVolume": {"name": "disk-2"}`),
		volume("c", `"persistentVolumeClaim": {"claimName": "disk-3"}`),
	}, ",")+`]}}`)
	tm.sallyport("adopt db", 0)
	if got := tm.get("svm/db", ".spec.blockDeviceRefs[*].name"); got != "data released" {
		t.Errorf("the VirtualMachine names VirtualDisks %q", got)
	}
}

// The labels of a machine are those of its VirtualMachine, so that a policy that wants an owner finds it. Those by which deployment tools,
// KubeVirt and Sallyport know what is theirs are not.
func adoptLabels(t *testing.T) {
	tm := newTeam(t)
	tm.theirs("web", `, "labels": {"owner": "alice", "app.kubernetes.io/instance": "shop", "argocd.argoproj.io/instance": "shop",
		"kubevirt.io/domain": "web", "vm.kubevirt.io/template": "rhel", "sallyport.dev/deletion-protected": "true"}`, `"runStrategy": "Halted"`)
	tm.sallyport("adopt web --dry-run=client -o jsonpath={.metadata.labels}", 0, `{"owner":"alice"}`)
	tm.sallyport("adopt web --labels owner", 1, `invalid --labels "owner": must be key=value`)
	tm.sallyport("adopt web --labels owner=bob,tier=", 0)
	if got := tm.get("svm/web", ".metadata.labels"); got != `{"owner":"bob","tier":""}` {
		t.Errorf("the labels are %s", got)
	}
}

// If the policy has machines observed at first, adopt does not decide otherwise by the run strategy.
func adoptObserved(t *testing.T) {
	tm := newTeam(t)
	tm.theirs("web", "", `"runStrategy": "Always"`)
	parameters := func(adopted string) string {
		return `{"spec":{"parameters":{"runPolicies":{"adopted":"` + adopted + `"}}}}`
	}
	tm.must("", "patch", "rego", "defaults", "--type=merge", "-p", parameters("Observe"))
	defer tm.must("", "patch", "rego", "defaults", "--type=merge", "-p", parameters("Manual"))
	tm.Until("policy defaults has machines observed", func() (string, bool) {
		r := tm.kubectl("", "sallyport", "adopt", "web", "--dry-run=client", "-o", "jsonpath={.spec.runPolicy}")
		return r.stdout + r.stderr, r.stdout == "Observe" && r.stderr == ""
	})
	tm.must("", "create", "role", "reads", "--verb=get,list", "--resource=virtualmachines.sallyport.dev,virtualdisks.sallyport.dev,virtualmachines.kubevirt.io")
	tm.must("", "create", "rolebinding", "reads", "--role=reads", "--user=reader")
	tm.sallyport("adopt web --dry-run=client --as reader", 1, "adopting web: ", `cannot create resource "virtualmachines"`)
	tm.sallyport("adopt web --run-policy Manual --dry-run=server", 0, "web: run strategy changes from Always to Manual (server dry run)")
}

// The machines in a folder of a vCenter are adopted with what policies say about each, and none of it is written in a dry run.
func TestAdoptFromAVCenter(t *testing.T) {
	tm := newTeam(t)
	v, err := vcsim.Start(vcsim.Options{})
	tm.Must(err)
	t.Cleanup(v.Close)
	v.AddFolder("/DC0/vm/team")
	v.AddFolder("/DC0/vm/elsewhere")
	for name, folder := range map[string]string{"Web 1": "/DC0/vm/team", "web-1": "/DC0/vm/team", "db": "/DC0/vm/team", "marked": "/DC0/vm/team", "by-id": "/DC0/vm/team", "foreign": ""} {
		path, err := v.AddMachine(name)
		if tm.Must(err); folder != "" {
			v.Move(path, folder)
		}
	}
	v.SetExtraConfig("/DC0/vm/team/marked", map[string]string{machine.OwnerKey: "uid-1", machine.NameKey: "team-b/db"})
	server, namespace := tm.namespace, tm.must("", "get", "deployments", "-A", "-l", "app.kubernetes.io/name=sallyport", "-o", "jsonpath={.items[0].metadata.namespace}")
	password, _ := v.User().Password()
	if _, errs, code := started.plane.Kubectl(t.Context(), "create", "secret", "generic", server, "-n", namespace,
		"--from-literal=username="+v.User().Username(), "--from-literal=password="+password); code != 0 {
		t.Fatal(errs)
	}
	tm.must(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VSphereServer", "metadata": {"name": %q}, "spec": {
		"url": %q, "trust": {"thumbprint": %q}, "credentialsSecretRef": {"name": %[1]q},
		"tenants": [{"name": "all", "namespaces": {"names": [%[1]q]}, "folders": ["/DC0/vm/team"], "adopt": true}]}}`, server, v.URL(), v.Thumbprint()), "create", "-f", "-")

	of := "adopt --vsphere-server " + server
	for _, c := range []struct{ args, want string }{
		{of, "--vsphere-server needs either inventory paths, such as /dc/vm/team-a/web-1, or --folder"},
		{of + " web-1", `"web-1" is no inventory path`},
		{of + " --all", "--all and selectors are for machines of KubeVirt"},
		{"adopt --folder /DC0/vm", "--folder and --tags require --vsphere-server"},
		{of + " --folder /DC0/vm/none", "vCenter " + server + " has no folder of machines /DC0/vm/none that the account can see"},
		{of + " /DC0/vm/foreign", "[servers-tenancy/"},
	} {
		tm.sallyport(c.args, 1, c.want)
	}
	same := "adopting /DC0/vm/team/web-1: VirtualMachine web-1 of Sallyport exists and is another machine: create one with another name and " +
		"spec.runtime.vsphere.inventoryPath: /DC0/vm/team/web-1\n"
	marked := "/DC0/vm/team/marked skipped: its mark sallyport.owner is of VirtualMachine team-b/db. If that is gone, remove the mark: " +
		"govc vm.change -vm /DC0/vm/team/marked -e sallyport.owner=\n"
	tm.sallyport(of+" --folder /DC0/vm/team --dry-run=server", 1, same, marked, "virtualmachine.sallyport.dev/db created (server dry run)\n")
	if got := tm.must("", "get", "svm", "-o", "name"); got != "" {
		t.Errorf("a dry run made\n%s", got)
	}
	tm.must(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": "seen"}, "spec": {"runPolicy": "Observe",
		"runtime": {"vsphere": {"serverRef": {"name": %q}, "instanceUUID": %q}}}}`, server, v.State("/DC0/vm/team/by-id").InstanceUUID), "create", "-f", "-")
	tm.sallyport(of+" --folder /DC0/vm --run-policy Observe", 1, "/DC0/vm/team/by-id skipped: it belongs to VirtualMachine seen of Sallyport\n", "adopting /DC0/vm/foreign: ", "[servers-tenancy/", "virtualmachine.sallyport.dev/db created\n", same)
	if got := tm.get("svm/web-1", ".spec.runPolicy") + tm.get("svm/web-1", ".spec.runtime.vsphere"); got != `Observe{"inventoryPath":"/DC0/vm/team/Web 1","serverRef":{"name":"`+server+`"}}` {
		t.Errorf("the VirtualMachine is %s", got)
	}
	tm.sallyport(of+" --folder /DC0/vm/team", 1, "/DC0/vm/team/db skipped: it belongs to VirtualMachine db of Sallyport\n", same)
	tm.sallyport(of+" /DC0/vm/team/db", 0, "skipped: it belongs to VirtualMachine db")
	tm.status("svm/db", `{"instanceID": "`+v.State("/DC0/vm/team/db").InstanceUUID+`"}`)
	v.Move("/DC0/vm/team/db", "/DC0/vm/elsewhere")
	tm.sallyport(of+" --folder /DC0/vm/elsewhere", 0, "/DC0/vm/elsewhere/db skipped: it belongs to VirtualMachine db of Sallyport\n")
	if n := v.Sessions(); n > 0 {
		t.Errorf("the plugin left %d sessions", n)
	}
}
