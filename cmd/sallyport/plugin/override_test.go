package plugin

import (
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// hint begins what those read who may override.
const hint = "To override operations-applicability once"

// override runs the plugin with that flag, which has spaces.
func (tm *team) override(line, flag string, code int, texts ...string) result {
	tm.Helper()
	r := tm.kubectl("", append([]string{"sallyport", "--override", flag}, strings.Fields(line)...)...)
	tm.reads(line+" --override "+flag, r, code, texts...)
	return r
}

func TestAnOverride(t *testing.T) {
	tm := newTeam(t)
	tm.machine("db-1", "Running", `, "runPolicy": "AlwaysOn"`)
	tm.sallyport("stop db-1", 1, "[operations-applicability/RunPolicyForbids]", hint+" (recorded as an event): --override \"operations-applicability: REASON\"\n")
	r := tm.override("stop db-1", "operations-supersede: ticket 42", 1,
		"is ignored: the override names policy operations-supersede, but operations-applicability refused the request")
	if strings.Contains(r.stderr, "To override") {
		t.Errorf("the user reads what the warning says already: %s", r.stderr)
	}
	tm.must(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": "seen"},
		"spec": {"runPolicy": "Observe", "runtime": {"kubevirt": {"name": "seen"}}}}`, "create", "-f", "-")
	if r = tm.sallyport("stop seen", 1, "[operations-applicability/MachineObserved]"); strings.Contains(r.stderr, "To override") {
		t.Errorf("the user reads what does not help: %s", r.stderr)
	}
	tm.override("stop db-1 --dry-run=server", "operations-applicability: ticket 42", 0, "created (server dry run)")
	r = tm.override("stop db-1", "operations-applicability: ticket 42; urgent", 0, "created", "Warning: ")
	past, _ := v1alpha1.ParseOverride(tm.get("svmop/"+tm.created(r), ".spec.override"))
	if past == nil || past.Policy != "operations-applicability" || past.UID != "" || past.By != tm.whoami() || past.Reason != "ticket 42; urgent" ||
		time.Until(past.Until) > cli.DefaultOverride {
		t.Errorf("the operation has the override %+v", past)
	}
}

func (tm *team) whoami() string {
	tm.Helper()
	return strings.TrimSpace(tm.must("", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"))
}

// Who may not override is not told how.
func TestTheWayPastIsForThoseWhoMay(t *testing.T) {
	tm := newTeam(t)
	tm.machine("db-1", "Running", `, "runPolicy": "AlwaysOn"`)
	user := tm.namespace + "-user"
	tm.must("", "create", "role", user, "--verb=create", "--resource=virtualmachineoperations.sallyport.dev")
	tm.must("", "create", "rolebinding", user, "--role="+user, "--user="+user)
	refusal := "[operations-applicability/RunPolicyForbids]"
	if r := tm.sallyport("stop db-1 --as "+user, 1, refusal); strings.Contains(r.stderr, "To override") {
		t.Error("the user reads of a right that they do not have")
	}
	tm.mayOverride(user, "operations-applicability")
	tm.Eventually("the right is known", func() bool {
		return strings.Contains(tm.kubectl("", "sallyport", "stop", "db-1", "--as", user).stderr, hint)
	})
	robot := "stop db-1 --as system:serviceaccount:" + tm.namespace + ":robot --as-group system:masters"
	if r := tm.sallyport(robot, 1, refusal); strings.Contains(r.stderr, "To override") {
		t.Error("a service account reads of what it is not allowed")
	}
	tm.sallyport("start db-1 --force --as "+user, 1, "not allowed with type Start")
}

// The command that a refusal names writes the override into the object.
func TestOverrideOfAnObject(t *testing.T) {
	tm := newTeam(t)
	tm.machine("db-1", "Running")
	tm.must("", "annotate", "svm/db-1", "note=kept")
	command := []string{"sallyport", "override", "deletion-protected", "svm/db-1", "--reason", "ticket 42"}
	stranger := tm.namespace + "-stranger"
	tm.bind("rolebinding", "sallyport-edit", stranger)
	tm.bind("rolebinding", "sallyport-view", stranger)
	tm.reads("override", tm.kubectl("", append(command, "--as", stranger)...), 1, stranger+" cannot override policy deletion-protected")
	tm.reads("override", tm.kubectl("", append(command, "--dry-run=client")...), 0, "annotated (dry run)")
	if got := tm.get("svm/db-1", `.metadata.annotations.sallyport\.dev/override`); got != "" {
		t.Errorf("a dry run wrote %s", got)
	}
	tm.reads("override", tm.kubectl("", command...), 0, "virtualmachines.sallyport.dev/db-1 annotated: requests by "+tm.whoami()+" override policy deletion-protected until ")
	if past, _ := v1alpha1.ParseOverride(tm.get("svm/db-1", `.metadata.annotations.sallyport\.dev/override`)); past == nil || time.Until(past.Until) > cli.DefaultOverride {
		t.Errorf("without --for, the override is %+v", past)
	}
	tm.reads("override", tm.kubectl("", append(command, "--for", "10m")...), 0, "override policy deletion-protected until ")
	if past, _ := v1alpha1.ParseOverride(tm.get("svm/db-1", `.metadata.annotations.sallyport\.dev/override`)); past == nil || time.Until(past.Until) > 10*time.Minute {
		t.Errorf("with --for 10m, the override is %+v", past)
	}
	tm.sallyport("override deletion-protected svm/db-1", 1, "--reason is required")
	for _, lasts := range []string{"0s", "61m"} {
		tm.sallyport("override deletion-protected svm db-1 --reason x --for "+lasts, 1, "must be between 1s and 1h0m0s", "--help")
	}
}
