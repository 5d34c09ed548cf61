package plugin

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/policies"
)

func TestWhyAMachine(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Stopped")
	name := tm.created(tm.sallyport("start web-1", 0))
	tm.status("svmop/"+name, unfinished("InProgress", "InProgress", "the runtime is busy", ""))
	tm.status("svm/web-1", `{"phase": "Starting", "activeOperation": {"id": "`+tm.get("svmop/"+name, ".metadata.uid")+`", "origin": "Operation",
		"name": "`+name+`", "type": "Start", "claimedAt": "2026-01-02T03:04:05.000000Z"}}`)
	r := tm.sallyport("why svm web-1", 0, "VirtualMachine web-1 in namespace "+tm.namespace, "waiting to be reconciled",
		"Start "+name, "InProgress: the runtime is busy", "AlwaysOnUnlessStoppedManually")
	for _, line := range []string{
		`(?m)^Allowed now:  stop, stop --force, delete$`,
		`(?m)^Denied now:   start, .*evict.*:$`,
		`(?m)^ {14}PhaseForbids: its phase is Starting$`,
		`(?m)^ {14}OperationInProgress: Start web-1-start-\w+ is in progress$`,
	} {
		if !regexp.MustCompile(line).MatchString(r.stdout) {
			t.Errorf("there is no line %s", line)
		}
	}
	if got := tm.must("", "get", "svmop", "-o", "name"); strings.Count(got, "\n") != 1 {
		t.Errorf("the question left something behind: %s", got)
	}
	known := tm.machineAsJSON()
	if known.VirtualMachine.Name != "web-1" || len(known.UnfinishedOperations) != 1 || len(known.Requests) != len(cli.MachineRequests()) || known.Requests[0].Reasons[0].Policy == "" {
		t.Errorf("known as JSON is %+v", known)
	}
	tm.sallyport("why svmop "+name, 0, "Start of VirtualMachine web-1", "InProgress: the runtime is busy", "this operation", "Deadline:", "Requested:")
	tm.sallyport("why svm nobody", 1, `Error from server (NotFound): virtualmachines.sallyport.dev "nobody" not found`)
	tm.sallyport("why svmop/nobody", 1, "operations are deleted after spec.ttlSecondsAfterFinished")
}

// machineReportJSON is what programs read of a machine.
type machineReportJSON struct {
	VirtualMachine       v1alpha1.VirtualMachine
	UnfinishedOperations []v1alpha1.VirtualMachineOperation
	Requests             []cli.Answer
}

func (tm *team) machineAsJSON() (known machineReportJSON) {
	tm.Helper()
	tm.Must(json.Unmarshal([]byte(tm.sallyport("why svm/web-1 -o json", 0).stdout), &known))
	return known
}

// rule is a policy that is asked about the operations of a test's own namespace, and that refuses by one rule.
func (tm *team) rule(name, mode, reason, message, condition string) {
	tm.Helper()
	tm.ruleOn(`[{"apiGroups": ["sallyport.dev"], "apiVersions": ["*"], "resources": ["virtualmachineoperations"], "operations": ["CREATE"]}]`,
		name, mode, reason, message, condition)
}

// ruleOn is a rule about requests of the team's namespace. It gives the policy's name.
func (tm *team) ruleOn(resources, name, mode, reason, message, condition string) string {
	tm.Helper()
	name = tm.namespace + "-" + name
	pkg := "acme." + strings.ReplaceAll(name, "-", "_")
	module := fmt.Sprintf(`# METADATA
# title: One rule
# description: For a test.
package %s

valid_input if is_string(input.request.namespace)

# METADATA
# title: A denial
# custom: {reason: %s, remedyInMessage: None.}
deny contains {"reason": %q, "message": $%q} if {
	%s
}
`, pkg, reason, reason, message, condition)
	test := fmt.Sprintf("package %[1]s_test\n\nimport data.%[1]s as policy\n\ntest_understood if policy.valid_input with input.request.namespace as \"team\"\n", pkg)
	tm.must(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "RegoPolicy", "metadata": {"name": %q}, "spec": {
		"package": %q, "mode": %q, "modules": [{"name": "rule.rego", "source": %q}],
		"tests": [{"name": "rule_test.rego", "source": %q}], "match": {
			"resources": %s, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %q}}}}}`,
		name, pkg, mode, module, test, resources, tm.namespace), "create", "-f", "-")
	tm.atTheEnd("delete", "rego", name, "--wait=false")
	return name
}

// Warnings belong to the questions that why asks, and a policy that fails to decide is not the machine's fault.
func TestWhyWithWarningsAndWithoutADecision(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.rule("warns", "Warn", "Night", "nobody works now in {input.request.namespace}; wait for the day",
		`input.request.object.spec.type in {"Stop", "Start"}`)
	tm.rule("fails", "Enforce", "Never", "never", `input.request.object.spec.type in {"Migrate", "Start"}; to_number(input.request.namespace) > 0`)
	var r result
	tm.Eventually("the policies are asked", func() bool {
		r = tm.kubectl("", "sallyport", "why", "svm", "web-1")
		return strings.Contains(r.stdout, "with warnings") && strings.Contains(r.stdout, "undecided")
	})
	tm.reads("why svm web-1", r, 0, "\nSome requests are denied because a policy failed to decide, not because of the machine. To see the problem:\n\n"+
		"  kubectl sallyport policies "+tm.namespace+"-fails\n")
	for _, line := range []string{
		`(?m)^Allowed now: +restart, restart --force, evict, evict --force, delete$`,
		`(?m)^Allowed now, with warnings:  stop, stop --force:$\n^ {29}Night: nobody works now in team-\d+; wait for the day$\n`,
		`(?m)^Denied now, undecided: +migrate, migrate --force:$\n^ {29}EvaluationFailed: policy evaluation failed: .*to_number`,
		`(?m)^Denied now: +start:$\n^ {29}`,
	} {
		if !regexp.MustCompile(line).MatchString(r.stdout) {
			t.Errorf("there is no line %s", line)
		}
	}
	if r.stderr != "" {
		t.Errorf("besides the user reads %s", r.stderr)
	}
	known := tm.machineAsJSON()
	want := []cli.Objection{{Policy: tm.namespace + "-warns", Reason: "Night", Message: "nobody works now in " + tm.namespace + "; wait for the day"}}
	if diff := cmp.Diff(want, known.Requests[1].Warnings); diff != "" {
		t.Errorf("warnings as JSON (-want +got):\n%s", diff)
	}
	if r := tm.sallyport("stop web-1", 0); !strings.Contains(r.stderr, "Warning: [") {
		t.Errorf("of an operation that is asked for the user reads no warning: %s", r.stderr)
	}
}

// One reason is enough where all are the same.
func TestWhyATerminatingMachine(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	tm.must("", "delete", "svm", "web-1", "--wait=false")
	tm.sallyport("why web-1", 0, "Deletion:", "waiting for finalizers sallyport.dev/virtual-machine",
		"Allowed now:  delete\nDenied now:   start, stop, stop --force, restart, restart --force, migrate, migrate --force, evict, evict --force:\n"+
			"              VirtualMachineTerminating: it is being deleted (since 2")
}

// What a freeze denies, and until when, is told of a machine.
func TestWhyAFrozenMachine(t *testing.T) {
	tm := newTeam(t)
	tm.machine("web-1", "Running")
	shipped, err := policies.Shipped()
	tm.Must(err)
	policy := shipped[slices.IndexFunc(shipped, func(p v1alpha1.RegoPolicy) bool { return p.Name == "windows" })]
	policy.ObjectMeta = metav1.ObjectMeta{Name: tm.namespace + "-windows"}
	policy.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": tm.namespace}}
	policy.Spec.Reads = policy.Spec.Reads[:1] // the others are granted to the shipped one only
	policy.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"windows": [], "freezes": [
		{"name": "always", "actions": ["Stop", "Restart"], "timeZone": "Europe/Vienna", "dates": {"from": "2020-01-01", "to": "2199-12-31"}}]}`)}
	text, err := json.Marshal(&policy)
	tm.Must(err)
	tm.must(string(text), "create", "-f", "-")
	tm.atTheEnd("delete", "rego", policy.Name, "--wait=false")
	var r result
	tm.Eventually("the policy is asked", func() bool {
		r = tm.kubectl("", "sallyport", "why", "svm", "web-1")
		return strings.Contains(r.stdout, "FreezeActive")
	})
	shows(t, r.stdout, `Denied now: +stop, stop --force, restart, restart --force:`, ` +FreezeActive: freeze always lasts until Wed 2200-01-01 00:00 Europe/Vienna`)
}
