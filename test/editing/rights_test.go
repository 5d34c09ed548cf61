package editing

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/step"
)

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

// metric gives the value of a metric of the manager.
func metric(t *testing.T, name string) float64 {
	t.Helper()
	all, err := stack.sallyport.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(all) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

var commands = regexp.MustCompile(`kubectl (create clusterrole \S+ .*?) && kubectl (create clusterrolebinding \S+ .*)`)

// To weaken or delete what is shipped takes a right, which the denial says how to give.
func TestShippedPoliciesAreWeakenedByRight(t *testing.T) {
	depth.Only(t)
	const name = "operations-applicability"
	p, a := bob(t), admin(t)
	t.Cleanup(func() {
		stack.plane.Kubectl(context.Background(), "delete", "clusterrole,clusterrolebinding", "override-"+name, "--ignore-not-found")
		stack.plane.Kubectl(context.Background(), "patch", "regopolicy", name, "--type=merge", "-p", `{"spec":{"mode":"Enforce","onError":"Deny","namespaceModes":null}}`)
	})
	refusal := "[policies-self/Weakened] RegoPolicy operations-applicability: this change is not allowed because it would weaken a policy that is shipped with Sallyport ("
	for merge, text := range map[string]string{
		`{"spec":{"mode":"Audit"}}`:    "spec.mode from Enforce to Audit); ",
		`{"spec":{"onError":"Allow"}}`: "spec.onError from Deny to Allow); ",
		`{"spec":{"namespaceModes":[{"mode":"Warn","namespaceSelector":{"matchLabels":{"a":"b"}}}]}}`: "spec.namespaceModes[0] is Warn for namespaces that may have had Enforce); ",
		`{"spec":{"match":{"excludeUsers":["bob"]}}}`:                                                 "spec.match.excludeUsers adds bob); ",
		`{"spec":{"match":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}}`:                          "spec.match.namespaceSelector selects different namespaces); ",
		`{"spec":{"override":"Everybody"}}`:                                                           "spec.override from Users to Everybody); ",
		`{"metadata":{"labels":{"sallyport.dev/shipped":null}}}`:                                      "label sallyport.dev/shipped is removed); ",
	} {
		p.refused("", patch(name, merge), refusal+text, "this requires the verb override on the RegoPolicy, which user bob does not have")
	}
	// Who is exempt from others, and what these rely on.
	for _, edit := range [][3]string{
		{"scaling-guard", `{"spec":{"parameters":{"exempt":{"users":["bob"]}}}}`, `spec.parameters.exempt.users adds "bob"); `},
		{"deletion-protected", `{"spec":{"parameters":{"garbageCollectors":["bob"]}}}`, `spec.parameters.garbageCollectors adds "bob"); `},
		{"policies-self", `{"spec":{"parameters":{"indispensable":[]}}}`, `spec.parameters.indispensable removes "defaults"); `},
		{"policies-self", `{"spec":{"parametersSchema":null}}`, "spec.parametersSchema no longer has x-sallyport-weakens: Removed for indispensable; spec.parametersSchema no longer has x-sallyport-weakens: Removed for reserved); "},
	} {
		p.refused("", patch(edit[0], edit[1]), "[policies-self/Weakened] RegoPolicy "+edit[0]+
			": this change is not allowed because it would weaken a policy that is shipped with Sallyport ("+edit[2])
	}
	p.may("", append(patch("scaling-guard", `{"spec":{"parameters":{"limits":[{"name":"a","minReplicas":2}]}}}`), "--dry-run=server")...)
	// Stricter, and what does not concern enforcement, takes no right.
	p.may("", patch(name, `{"metadata":{"labels":{"team":"fleet"}},"spec":{"override":"Nobody","timeoutMilliseconds":2500}}`)...)
	p.refused("", patch(name, `{"spec":{"override":"Users"}}`), "spec.override from Nobody to Users")
	a.may("", patch(name, `{"spec":{"override":"Users","timeoutMilliseconds":2000}}`)...) // the administrator holds every verb

	said := p.refused("", []string{"delete", "regopolicy", name},
		"[policies-self/Deleted] RegoPolicy operations-applicability: deletion is not allowed because Sallyport ships the policy and would restore it",
		"policies.operations-applicability.enabled")
	grant := commands.FindStringSubmatch(said.stderr)
	if grant == nil {
		t.Fatalf("there are no commands in %s", said.stderr)
	}
	for _, command := range grant[1:] {
		a.may("", strings.Fields(command)...)
	}
	err := step.Await(t.Context(), func(context.Context) (bool, error) {
		return p.try("", append(patch(name, `{"spec":{"mode":"Audit"}}`), "--dry-run=server")...).code == 0, nil
	})
	if err != nil {
		t.Fatalf("with the right bob still may not: %s", p.try("", patch(name, `{"spec":{"mode":"Audit"}}`)...).stderr)
	}
	p.may("", patch(name, `{"spec":{"mode":"Audit"}}`)...)
	p.may("", "delete", "regopolicy", name)
	p.refused("", patch(supersede, `{"spec":{"mode":"Audit"}}`), "[policies-self/Weakened]") // of another one
	shows(t, name, v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsPassed)                // it was put back
}

// What others rely on is weakened and deleted by nobody, whatever they may; edited it can be.
func TestWhatIsReliedOnIsNotWeakened(t *testing.T) {
	a := admin(t)
	const (
		refusal  = "[policies-self/Indispensable] RegoPolicy defaults: "
		weakened = "this change is not allowed because other policies rely on what it writes, and the change would weaken it ("
	)
	for merge, text := range map[string]string{
		`{"spec":{"mode":"Warn"}}`:                               "spec.mode from Enforce to Warn); ",
		`{"spec":{"mode":"Audit"}}`:                              "spec.mode from Enforce to Audit); ",
		`{"spec":{"onError":"Allow"}}`:                           "spec.onError from Deny to Allow); ",
		`{"spec":{"match":{"excludeUsers":["eve"]}}}`:            "spec.match.excludeUsers adds eve); ",
		`{"metadata":{"labels":{"sallyport.dev/shipped":null}}}`: "label sallyport.dev/shipped is removed); ",
	} {
		a.refused("", patch("defaults", merge), refusal+weakened+text)
	}
	a.refused("", []string{"delete", "regopolicy", "defaults"}, refusal+"deletion is not allowed because other policies rely on what it writes; ")
	a.may("", append(patch("defaults", `{"spec":{"timeoutMilliseconds":1500}}`), "--dry-run=server")...)
}

// The policy about policies is one of them.
func TestTheWatchmanIsWatched(t *testing.T) {
	p := bob(t)
	p.refused("", patch("policies-self", `{"spec":{"mode":"Warn"}}`), "[policies-self/Weakened] RegoPolicy policies-self: this change is not allowed")
	p.refused("", []string{"delete", "regopolicy", "policies-self"}, "[policies-self/Deleted]")
	p.refused(edited(t, "policies-self", "valid_input if {", "valid_input if {\n  false"), replace, "[policies-self/TestsFailed]")
}

// aside takes policies-self out of the way, as whoever may does in an emergency, until the function that it gives is called.
func aside(a person) (back func()) {
	a.Helper()
	a.may("", patch("policies-self", `{"spec":{"mode":"Audit"}}`)...)
	a.Eventually("policies-self lets everything pass", func() bool {
		return a.try(text(a.T.T, quota("probe", module("valid_input", "} valid_input"))), "create", "--dry-run=server", "-f", "-").code == 0
	})
	return func() {
		a.may("", patch("policies-self", `{"spec":{"mode":"Enforce"}}`)...)
		a.Eventually("policies-self refuses again", func() bool {
			return a.try(text(a.T.T, quota("probe", module("valid_input", "} valid_input"))), "create", "--dry-run=server", "-f", "-").code != 0
		})
	}
}

// A policy that is broken, however that came, can be taken out of the way at once, and can be repaired.
func TestBrokenPoliciesCanBeRepaired(t *testing.T) {
	depth.Only(t)
	p, a := bob(t), admin(t)
	forget(t, "broken")
	p.may(text(t, quota("broken")), "create", "-f", "-")
	shows(t, "broken", v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsPassed)
	back := aside(a)
	p.may(edited(t, "broken", "deny contains {", "deny contains } {"), replace...)
	shows(t, "broken", v1alpha1.ConditionActive, v1alpha1.ReasonLastGoodRevision)
	shows(t, "broken", v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsNotRun)
	failing := quota("failing", tests("test_x if false"))
	forget(t, "failing")
	p.may(text(t, failing), "create", "-f", "-")
	if message := shows(t, "failing", v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsFailed); !strings.Contains(message, "failing/quota_test.rego:3: test team.failing_test.test_x: failed") {
		t.Errorf("it shows %q", message)
	}
	event := p.event("failing", "TestsFailed")
	if !strings.Contains(event, "failing/quota_test.rego:3") {
		t.Errorf("the event says %q", event)
	}
	back()

	p.may("", patch("broken", `{"metadata":{"labels":{"a":"b"},"annotations":{"sallyport.dev/note":"x"}}}`)...)
	p.may("", patch("broken", `{"spec":{"onError":"Allow","match":{"excludeNamespaces":["x"]},"namespaceModes":[{"mode":"Warn","namespaceSelector":{}}]}}`)...)
	took := p.may("", patch("broken", `{"spec":{"mode":"Audit"}}`)...).took
	t.Logf("mode Audit took %d ms", took.Milliseconds())
	p.refused("", patch("broken", `{"spec":{"parameters":{"a":1}}}`), "[policies-self/CompileFailed]")
	p.refused("", patch("broken", `{"spec":{"match":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Bogus"}]}}}}`), `"Bogus" is not a valid label selector operator`)
	p.may(edited(t, "broken", "deny contains } {", "deny contains {"), replace...)
	shows(t, "broken", v1alpha1.ConditionActive, v1alpha1.ReasonCurrentRevision)
	p.may("", patch("failing", `{"spec":{"parameters":{"a":1}}}`)...) // which the tests that fail do not see
	p.refused(edited(t, "failing", "root", "toor"), replace, "[policies-self/TestsFailed]")
	p.may("", "delete", "regopolicy", "broken", "failing")
}

// event waits for an event about a policy, and gives its note.
func (p person) event(name, reason string) (note string) {
	p.Helper()
	p.Eventually(fmt.Sprintf("there is an event %s about %s", reason, name), func() bool {
		note = admin(p.T.T).may("", "get", "events.events.k8s.io", "-n", "default", "-o",
			fmt.Sprintf(`jsonpath={.items[?(@.reason=="%s")]['note','regarding.name']}`, reason)).stdout
		return strings.Contains(note, name)
	})
	return note
}

// Whatever keeps a policy from being tested does not keep anybody from letting requests pass, and the refusal says how the
// edit passes all the same.
func TestNoTestRunCanBeMade(t *testing.T) {
	depth.Only(t)
	p, a := bob(t), admin(t)
	forget(t, "stuck")
	p.may(text(t, quota("stuck")), "create", "-f", "-")
	o := stack.options
	o.Binary = copyOf(t, o.Binary)
	restart(t, func() error { return stack.sallyport.Resume(t.Context(), o) })
	t.Cleanup(func() {
		restart(t, func() error { return stack.sallyport.Resume(context.Background(), stack.options) })
	})
	if err := os.Remove(o.Binary); err != nil { // as when nothing can be started any more
		t.Fatal(err)
	}
	p.refused(edited(t, "stuck", "root", "toor"), replace,
		"[policies-self/FactUnavailable] policy evaluation failed: facts.rehearsal: ", "no such file or directory",
		"to write the policy without a test run, first set policies-self to mode Audit (needs the verb override on policies-self): kubectl patch regopolicy policies-self")
	p.may("", patch("stuck", `{"spec":{"mode":"Audit","onError":"Allow"}}`)...)
	p.may("", patch("stuck", `{"spec":{"match":{"excludeUsers":["x"]}}}`)...)
	back := aside(a)
	p.may(edited(t, "stuck", `"root"`, `"toor"`), replace...)
	back()
	p.may("", "delete", "regopolicy", "stuck")
}

// restart has another manager run.
func restart(t *testing.T, resume func() error) {
	t.Helper()
	if err := stack.sallyport.Stop(); err != nil {
		t.Error(err)
	}
	if err := resume(); err != nil {
		t.Error(err)
	}
}

// With nobody there to judge, who may override policies-self still can write, and says why.
func TestNobodyIsThere(t *testing.T) {
	p, a := bob(t), admin(t)
	forget(t, "lonely")
	p.may(text(t, quota("lonely")), "create", "-f", "-")
	if err := stack.sallyport.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.sallyport.Resume(context.Background(), stack.options); err != nil {
			t.Error(err)
		}
	})
	unchecked := `{"metadata":{"annotations":{"sallyport.dev/unchecked":"INC-7: no replica starts"}},"spec":{"mode":"Audit"}}`
	p.refused("", patch("lonely", `{"spec":{"mode":"Audit"}}`), "failed calling webhook")
	p.refused("", patch("lonely", unchecked), "failed calling webhook")
	a.refused("", patch("lonely", `{"spec":{"mode":"Audit"}}`), "failed calling webhook")
	a.may("", patch("lonely", unchecked)...)
	a.refused("", patch("lonely", `{"spec":{"mode":"Warn"}}`), "failed calling webhook")
}
