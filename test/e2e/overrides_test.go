package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/step"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/record"
)

const applicability = "operations-applicability"

// by is kubectl's arguments for a user to do something.
func by(user string, args ...string) []string { return append([]string{"--as", user}, args...) }

// overriders is a team whose members may all create operations, and alice may override a policy, too. In its name {} stands for
// the namespace.
func overriders(t *testing.T, policy string) *team {
	t.Helper()
	tm := newTeam(t)
	policy = strings.ReplaceAll(policy, "{}", tm.namespace)
	for _, user := range []string{"alice", "bob", "carol", "dave"} {
		tm.must("", "create", "rolebinding", user, "--clusterrole=edit", "--user="+user)
	}
	tm.must("", "create", "serviceaccount", "robot")
	tm.must("", "create", "rolebinding", "robot", "--clusterrole=edit", "--serviceaccount="+tm.namespace+":robot")
	role := tm.namespace + "-override"
	tm.must("", "create", "clusterrole", role, "--verb=override", "--resource=regopolicies.sallyport.dev", "--resource-name="+policy)
	tm.must("", "create", "clusterrolebinding", role, "--clusterrole="+role, "--user=alice", "--user=dave", "--serviceaccount="+tm.namespace+":robot")
	// A right that somebody has in a namespace is not one on a policy, which is in none.
	tm.must("", "create", "rolebinding", role, "--clusterrole="+role, "--user=carol")
	t.Cleanup(func() {
		tm := &team{T: step.T{T: t}, namespace: tm.namespace}
		out, errs, code := stack.plane.Kubectl(context.Background(), "delete", "clusterrolebinding,clusterrole", role)
		if code != 0 {
			tm.Errorf("%s%s", out, errs)
		}
	})
	for _, who := range []string{"alice", "system:serviceaccount:" + tm.namespace + ":robot"} {
		tm.Eventually(who+" may override", func() bool {
			return tm.kubectl("", by(who, "auth", "can-i", "override", "regopolicies.sallyport.dev/"+policy)...).code == 0
		})
		tm.Eventually(who+" may create operations", func() bool {
			return tm.kubectl("", by(who, "auth", "can-i", "create", "svmop")...).code == 0
		})
	}
	return tm
}

// in is a time from now as overrides have it.
func in(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

// overriding is the manifest of an operation with an override.
func overriding(override, name, machine, kind string, spec ...string) string {
	annotation := fmt.Sprintf(`"metadata": {"annotations": {"sallyport.dev/override": %q}, `, override)
	return strings.Replace(operation(name, machine, kind, spec...), `"metadata": {`, annotation, 1)
}

// A user without the verb is refused; with it, and a reason, one passes, at the first door and at the second; and who, what and why
// can be seen wherever people look.
func TestOverride(t *testing.T) {
	tm := overriders(t, applicability)
	tm.machine("web-1", "Running", `, "runPolicy": "AlwaysOn"`)
	override := func(by, until string) string {
		return applicability + "; uid=; by=" + by + "; until=" + until + "; the guest hangs, ticket 42"
	}
	soon := in(30 * time.Minute)
	stopOf := func(user string) string {
		return overriding(override(user, soon), "stop-1", "web-1", "Stop")
	}
	robot, stop := "system:serviceaccount:"+tm.namespace+":robot", stopOf("alice")
	const ignored = "Warning: annotation sallyport.dev/override is ignored: "
	for who, tc := range map[string]struct {
		manifest string
		texts    []string
	}{
		"alice": {overriding(override("alice", in(-time.Minute)), "stop-1", "web-1", "Stop"), []string{ignored + "until=", " has passed (now "}},
		"bob":   {stopOf("bob"), []string{ignored + "bob may not override policy " + applicability + ": missing the verb override on regopolicies.sallyport.dev " + applicability}},
		"carol": {stopOf("carol"), []string{ignored + "carol may not override policy"}},
		robot:   {stopOf(robot), []string{ignored + "service accounts cannot override policy"}},
		"dave":  {stop, []string{ignored + "by= is not the user who sent this request"}},
	} {
		tm.refused(tc.manifest, by(who, create...), append(tc.texts, "["+applicability+"/RunPolicyForbids]")...)
	}
	passed := "Warning: [" + applicability + "/RunPolicyForbids] is overridden until " + soon + ": "
	for _, args := range [][]string{{"create", "--dry-run=server", "-f", "-"}, create} {
		if r := tm.kubectl(stop, by("alice", args...)...); r.code != 0 || !strings.Contains(r.stderr, passed) {
			t.Fatalf("kubectl %s: exit %d: %s", strings.Join(args, " "), r.code, r.stderr)
		}
	}
	if got := tm.get("svmop/stop-1", ".spec.override"); got != override("alice", soon) {
		t.Errorf("what is stamped is %q", got)
	}
	tm.await("svmop/stop-1", ".status.phase", "Completed")

	records := awaitRecords(t, tm.namespace, "that of the second door", func(records []record.Record) bool {
		return len(overriddenAt(records, "arbitrate")) > 0
	})
	if got := overriddenAt(records, "validate"); len(got) != 2 || got[1].Denials[0].Reason != "RunPolicyForbids" ||
		*got[1].Override != (decision.Override{By: "alice", Until: soon, Reason: "the guest hangs, ticket 42"}) {
		t.Errorf("recorded are the overrides %+v, want the dry-run's and the other", got)
	}
	// By the first door, which does not know who asked, or by the second one, whichever is first: events about the same are one.
	note := fmt.Sprintf("overrode [%s/RunPolicyForbids] (CREATE of VirtualMachineOperation %s/stop-1, until %s): the guest hangs, ticket 42",
		applicability, tm.namespace, soon)
	tm.toldOf("svmop/stop-1", note)
	tm.toldOf("rego/"+applicability, note)
	metrics, err := stack.sallyport.Metrics(t.Context())
	if err != nil || !strings.Contains(metrics, `sallyport_policy_overrides_total{policy="`+applicability+`"} 1`) {
		t.Errorf("one override, without that of the dry-run, is not counted: %v", err)
	}
	audit, err := os.ReadFile(stack.audit)
	if want := fmt.Sprintf(`"validate.sallyport.dev/override":"%s until %s: the guest hangs, ticket 42"`, applicability, soon); err != nil || !strings.Contains(string(audit), want) {
		t.Errorf("the audit log does not have %s (%v)", want, err)
	}
}

// overriddenAt are the decisions that an endpoint recorded as overridden.
func overriddenAt(records []record.Record, endpoint string) (found []record.PolicyDecision) {
	for _, r := range records {
		for _, p := range r.Policies {
			if r.Endpoint == endpoint && p.Verdict == "overridden" {
				found = append(found, p)
			}
		}
	}
	return found
}

// toldOf waits for the event where people look for it.
func (tm *team) toldOf(object, note string) {
	tm.Helper()
	tm.Eventually("there is the event "+note, func() bool {
		return strings.Contains(tm.must("", "describe", object), note)
	})
}

// frozen is a policy that refuses every change of the machines of a namespace.
const frozen = `
apiVersion: sallyport.dev/v1alpha1
kind: RegoPolicy
metadata: {name: %[1]s-frozen}
spec:
  package: e2e.frozen
  match:
    resources: [{apiGroups: [sallyport.dev], apiVersions: ["*"], resources: [virtualmachines], operations: [UPDATE]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  modules:
  - name: frozen.rego
    source: |
      # METADATA
      # title: Machines do not change
      # description: None of them.
      package e2e.frozen

      valid_input if is_string(input.request.name)

      # METADATA
      # title: Machines are frozen
      # custom: {reason: Frozen, remedy: Wait.}
      deny contains {"reason": "Frozen", "message": $"{input.request.name} does not change"}
  tests:
  - name: frozen_test.rego
    source: |
      package e2e.frozen_test

      import data.e2e.frozen

      test_frozen[note] if {
        some note, name in {"any machine": "web-1"}
        count(frozen.deny) == 1 with input as {"request": {"name": name}}
      }
`

// On an object that exists an override is written beforehand, or with the change itself. It is good for that object, that policy
// and who holds the verb.
func TestOverrideOnAnObjectThatExists(t *testing.T) {
	depth.Only(t)
	tm := overriders(t, "{}-frozen")
	policy := tm.namespace + "-frozen"
	tm.machine("web-1", "Stopped")
	tm.machine("web-2", "Stopped")
	tm.must(fmt.Sprintf(frozen, tm.namespace), create...)
	t.Cleanup(func() {
		if out, errs, code := stack.plane.Kubectl(context.Background(), "delete", "rego", policy); code != 0 {
			t.Errorf("%s%s", out, errs)
		}
	})
	label := func(user, machine, value string) []string {
		return by(user, "label", "svm", machine, "state="+value, "--overwrite")
	}
	tm.Eventually("machines are frozen", func() bool {
		return strings.Contains(tm.kubectl("", append(label("alice", "web-1", "trial"), "--dry-run=server")...).stderr, "["+policy+"/Frozen]")
	})
	overrideOf := func(user string) string {
		return fmt.Sprintf("sallyport.dev/override=%s; uid=%s; by=%s; until=%s; thaw", policy, tm.uid("web-1"), user, in(30*time.Minute))
	}
	override := overrideOf("alice")
	tm.refused("", by("bob", "annotate", "svm", "web-1", overrideOf("bob")), "bob may not override policy")
	tm.refused("", by("bob", "annotate", "svm", "web-1", override), "by= must be the user who writes the annotation, bob")
	tm.must("", by("alice", "annotate", "svm", "web-1", override)...)
	tm.must("", label("alice", "web-1", "thawed")...)
	tm.refused("", label("bob", "web-1", "bobs"), "web-1 does not change", "by= is not the user who sent this request")
	tm.refused("", label("system:serviceaccount:"+tm.namespace+":robot", "web-1", "robots"), "by= is not the user who sent this request")
	tm.refused("", by("alice", "annotate", "svm", "web-2", override), "web-2 does not change", "uid= must be the UID of this object")
	tm.refused("", label("alice", "web-2", "thawed"), "web-2 does not change")
	tm.toldOf("svm/web-1", "a request overrode ["+policy+"/Frozen] (")
	if got := tm.get("svm/web-1", ".metadata.labels.state"); got != "thawed" {
		t.Errorf("the machine is %s", got)
	}
}

// A policy that is tried out in a namespace warns there, and refuses everywhere else.
func TestModeOfANamespace(t *testing.T) {
	tried, other := newTeam(t), newTeam(t)
	for _, tm := range []*team{tried, other} {
		tm.machine("web-1", "Running")
	}
	dry := []string{"create", "--dry-run=server", "-f", "-"}
	start := operation("start-1", "web-1", "Start")
	set := func(modes string) {
		out, errs, code := stack.plane.Kubectl(context.Background(), "patch", "rego", applicability, "--type=merge", "-p", `{"spec": {"namespaceModes": `+modes+`}}`)
		if code != 0 {
			t.Errorf("%s%s", out, errs)
		}
	}
	set(fmt.Sprintf(`[{"mode": "Warn", "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": %q}}}]`, tried.namespace))
	t.Cleanup(func() { set("null") })
	tried.Eventually("the policy only warns", func() bool { return tried.kubectl(start, dry...).code == 0 })
	r := tried.kubectl(start, create...)
	if r.code != 0 || !strings.Contains(r.stderr, "Warning: ["+applicability+"/PhaseForbids] VirtualMachine web-1: start is not allowed because its phase is Running") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	tried.await("svmop/start-1", ".status.phase", "Completed") // the second door does not refuse it either
	other.refused(start, create, "["+applicability+"/PhaseForbids]")
	records := awaitRecords(t, tried.namespace, "the mode", func(records []record.Record) bool {
		return len(records) > 0 && records[len(records)-1].Endpoint == "arbitrate"
	})
	for _, p := range records[len(records)-1].Policies {
		if p.Policy == applicability && (p.Mode != "Warn" || p.Verdict != "warned") {
			t.Errorf("recorded is %+v", p)
		}
	}
}
