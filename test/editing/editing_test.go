package editing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/step"
)

const supersede = "operations-supersede"

// quota is a policy of somebody's own.
func quota(name string, changes ...func(*v1alpha1.RegoPolicy)) *v1alpha1.RegoPolicy {
	p := &v1alpha1.RegoPolicy{}
	p.Name = name
	p.Spec = v1alpha1.RegoPolicySpec{
		Package: "team." + strings.ReplaceAll(name, "-", "_"), Mode: v1alpha1.ModeEnforce, OnError: v1alpha1.OnErrorDeny,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{"sallyport.dev"}, APIVersions: []string{"*"}, Resources: []string{"virtualmachines"},
			Operations: []v1alpha1.MatchOperation{v1alpha1.MatchCreate},
		}}},
	}
	p.Spec.Modules = []v1alpha1.PolicyModule{{Name: "quota.rego", Source: fmt.Sprintf(`# METADATA
# title: Names
# description: Machines are not called root.
package %s

valid_input if is_string(input.request.object.metadata.name)

# METADATA
# title: The name is taken
# custom: {reason: NameTaken, remedy: Take another one.}
deny contains {"reason": "NameTaken", "message": $"nothing is called {input.request.object.metadata.name}"} if {
	_taken(input.request.object.metadata.name)
}

_taken(name) if name == "root"
`, p.Spec.Package)}}
	p.Spec.Tests = []v1alpha1.PolicyTest{{Name: "quota_test.rego", Source: fmt.Sprintf(`package %[1]s_test

import data.%[1]s as policy

test_root if count(policy.deny) == 1 with input.request.object.metadata.name as "root"

test_others[name] if {
	some name in ["web", "rooted"]
	count(policy.deny) == 0 with input.request.object.metadata.name as name
}
`, p.Spec.Package)}}
	for _, c := range changes {
		c(p)
	}
	return p
}

func module(from, to string) func(*v1alpha1.RegoPolicy) {
	return func(p *v1alpha1.RegoPolicy) {
		p.Spec.Modules[0].Source = strings.Replace(p.Spec.Modules[0].Source, from, to, 1)
	}
}

func tests(source string) func(*v1alpha1.RegoPolicy) {
	return func(p *v1alpha1.RegoPolicy) {
		p.Spec.Tests[0].Source = "package " + p.Spec.Package + "_test\n\n" + source + "\n"
	}
}

func TestShippedPoliciesPassTheirOwnTests(t *testing.T) {
	all := installed(t)
	for i := range all {
		name := all[i].Name
		message := shows(t, name, v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsPassed)
		result := get(t, name).Status.Tests
		if result == nil || result.Passed == 0 || result.Failed > 0 || !strings.Contains(message, "when this release was built") {
			t.Errorf("%s: %s, %+v", name, message, result)
		}
	}
}

// installed are the shipped policies that the chart installs by default: without imports of images, there is none for their data.
func installed(t *testing.T) []v1alpha1.RegoPolicy {
	t.Helper()
	all, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p v1alpha1.RegoPolicy) bool { return p.Name == "images-children" })
}

// A shipped policy that somebody edits is tested here, in a child with limits, and finds as many tests as were counted. Tried are
// those with the longest tests.
func TestShippedPoliciesThatAreEditedPassTheirOwnTests(t *testing.T) {
	depth.Only(t)
	all := installed(t)
	length := func(p v1alpha1.RegoPolicy) (n int) {
		for _, test := range p.Spec.Tests {
			n += len(test.Source)
		}
		return n
	}
	slices.SortFunc(all, func(a, b v1alpha1.RegoPolicy) int { return length(b) - length(a) })
	for _, p := range all[:3] {
		name := p.Name
		shows(t, name, v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsPassed)
		before := get(t, name)
		source := func(text string) []string {
			op := []map[string]string{{"op": "replace", "path": "/spec/tests/0/source", "value": text}}
			encoded, err := json.Marshal(op)
			if err != nil {
				t.Fatal(err)
			}
			return []string{"patch", "regopolicy", name, "--type=json", "-p", string(encoded)}
		}
		admin(t).may("", source(before.Spec.Tests[0].Source+"\n# Somebody was here.\n")...)
		want := fmt.Sprintf("%d tests passed.", before.Status.Tests.Passed)
		if message := shows(t, name, v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsPassed); message != want {
			t.Errorf("%s shows %q, not %q", name, message, want)
		}
		admin(t).may("", source(before.Spec.Tests[0].Source)...)
	}
}

// place is where in a stored policy a text is first, as file:line.
func place(t *testing.T, name, text string) string {
	t.Helper()
	module := get(t, name).Spec.Modules[0]
	before, _, found := strings.Cut(module.Source, text)
	if !found {
		t.Fatalf("there is no %q in %s", text, name)
	}
	return fmt.Sprintf("%s/%s:%d", name, module.Name, strings.Count(before, "\n")+1)
}

func TestBrokenEditsAreRefused(t *testing.T) {
	p := bob(t)
	before := get(t, supersede)
	for _, tc := range []struct {
		what, from, to string
		texts          []string
	}{
		{"a typo", "deny contains {", "deny contains } {", []string{
			`admission webhook "validate-policies.sallyport.dev" denied the request: [policies-self/CompileFailed] RegoPolicy operations-supersede does not compile:`,
			place(t, supersede, "deny contains {") + ":15: unexpected } token",
		}},
		{"a misspelt field", "input.request.namespace", "input.request.namespac", []string{
			place(t, supersede, "input.request.namespace") + ":16: undefined ref: input.request.namespac",
		}},
		{"a broken contract", "#   reason: OperationInProgress", "#   why: OperationInProgress", []string{
			"[policies-self/ContractBroken] RegoPolicy operations-supersede violates the policy contract:", "METADATA custom.why is unknown",
		}},
		{"a failing test", "allowed now:", "allowed today:", []string{
			"[policies-self/TestsFailed]", "operations-supersede/supersede_test.rego:", "sallyport.operations.supersede_test.test_", "in cases",
		}},
		{"a rule that forbids what its own tests allow", "	not _yields(op)", "	op.spec.type", []string{
			"[policies-self/TestsFailed]", "tests of RegoPolicy operations-supersede failed:", "operations-supersede/supersede_test.rego:", "sallyport.operations.supersede_test.test_matrix: failed in cases",
		}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			p.T = step.T{T: t}
			p.refused(edited(t, supersede, strings.ReplaceAll(tc.from, "\t", "  "), strings.ReplaceAll(tc.to, "\t", "  ")), replace, tc.texts...)
		})
	}
	p.T = step.T{T: t}
	p.refused("", patch(supersede, `{"spec":{"parameters":{"yieldsTo":{"Stop":["Restat"]}}}}`),
		"[policies-self/ParametersInvalid] RegoPolicy operations-supersede has invalid parameters:", "yieldsTo has a row for each operation")
	p.refused("", patch(supersede, `{"spec":{"tests":null}}`), "[policies-self/TestsMissing]", "a module in package sallyport.operations.supersede_test")
	p.refused("", patch(supersede, `{"spec":{"match":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Bogus"}]}}}}`),
		"[policies-self/CompileFailed]", `spec.match: namespaceSelector: "Bogus" is not a valid label selector operator`)
	if after := get(t, supersede); after.ResourceVersion != before.ResourceVersion {
		t.Error("something was stored")
	}
}

func TestPoliciesOfOnesOwn(t *testing.T) {
	p := bob(t)
	forget(t, "own")
	create := []string{"create", "-f", "-"}
	for what, tc := range map[string]struct {
		policy *v1alpha1.RegoPolicy
		texts  []string
	}{
		"without tests":  {quota("own", func(p *v1alpha1.RegoPolicy) { p.Spec.Tests = nil }), []string{"[policies-self/TestsMissing]"}},
		"an empty table": {quota("own", tests(`test_x[n] if { some n in array.slice([1], 1, 1) }`)), []string{"quota_test.rego:3", "the table has no rows"}},
		"tests that are lost": {quota("own", func(p *v1alpha1.RegoPolicy) { p.Spec.Tests[0].Source = "package team.own\n\ntest_x if true\n" }),
			[]string{"[policies-self/ContractBroken]", "own/quota_test.rego:1:1: tests of team.own must be in a package that ends in _test"}},
		"a test that prints": {quota("own", tests("test_x if {\n\tprint(\"got\", [1, 2])\n\tfalse\n}")), []string{"own/quota_test.rego:3: team.own_test.test_x: failed\n    own/quota_test.rego:5: false: got false\n    got [1, 2]"}},
		"the clock":          {quota("own", module(`name == "root"`, `time.now_ns() > 7`)), []string{"own/quota.rego:15:", "undefined function time.now_ns"}},
		"a table against its schema": {quota("own", func(p *v1alpha1.RegoPolicy) {
			p.Spec.Parameters, p.Spec.ParametersSchema = raw(`{"names": [7]}`), raw(`{"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}`)
		}), []string{"[policies-self/ParametersInvalid]", `RegoPolicy own has invalid parameters: spec.parameters.names[0]: Invalid value: "integer"`}},
	} {
		t.Run(what, func(t *testing.T) {
			p.T = step.T{T: t}
			p.refused(text(t, tc.policy), create, tc.texts...)
		})
	}
	p.T = step.T{T: t}
	p.may(text(t, quota("own")), create...)
	// What is asked for again is not tried again, unless something else has changed meanwhile: as here other policies may, at the start.
	edit := text(t, quota("own", tests("import data.team.own as policy\n\ntest_root if count(policy.deny) == 1 with input.request.object.metadata.name as \"root\"")))
	cached := func() float64 { return metric(t, `sallyport_policy_test_runs_total{result="cached"}`) }
	before := cached()
	err := step.Await(t.Context(), func(context.Context) (bool, error) {
		p.may(edit, append(replace, "--dry-run=server")...)
		return cached() > before, nil
	})
	if err != nil {
		t.Errorf("waiting until a finding is cached: %v", err)
	}
	if message := shows(t, "own", v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsPassed); message != "2 tests passed." {
		t.Errorf("it shows %q", message)
	}
	shows(t, "own", v1alpha1.ConditionActive, v1alpha1.ReasonCurrentRevision)
	admin(t).refused(machine("root"), create, "[own/NameTaken] nothing is called root")
	// What is one's own one can also weaken, and delete.
	p.may("", patch("own", `{"spec":{"mode":"Audit"}}`)...)
	p.may("", "delete", "regopolicy", "own")
}

func machine(name string) string {
	return fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": %q, "namespace": "default"},
		"spec": {"runtime": {"kubevirt": {}}}}`, name)
}

// A policy that takes for ever is refused when its time is up, and costs requests nothing meanwhile.
func TestEndlessAndHugePoliciesAreRefused(t *testing.T) {
	depth.Only(t)
	p := bob(t)
	create := []string{"create", "-f", "-"}
	endless := quota("endless", tests(`_n := [i | some i in split("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "")]

test_endless if { some a in _n; some b in _n; some c in _n; some d in _n; some e in _n; some f in _n; some g in _n; concat("", [a, b, c, d, e, f, g]) == "b" }`))
	var rules strings.Builder
	for i := range 40 {
		fmt.Fprintf(&rules, "_s%d := [[x, i, x, i, x, i, x, i] | some i in [1, 2]; some x in _s%d]\n\n", i+1, i)
	}
	repeated := quota("repeated", tests("_s0 := [1, 2, 3, 4, 5, 6, 7, 8]"+"\n\n"+rules.String()+"test_repeated if count(_s40) == 0"))
	huge := quota("huge", tests(`_l := [1, 2, 3, 4, 5, 6, 7, 8]

test_huge if count([[a, b, c, d, e, f, g, h] | some a in _l; some b in _l; some c in _l; some d in _l; some e in _l; some f in _l; some g in _l; some h in _l]) == 0`))
	done := make(chan answer)
	go func() { done <- p.once(text(t, endless), create...) }()
	slowest := time.Duration(0)
	for requests := 0; ; requests++ {
		select {
		case a := <-done:
			t.Logf("refused after %d ms: %s%d requests were answered meanwhile, the slowest in %d ms", a.took.Milliseconds(), a.stderr, requests, slowest.Milliseconds())
			if a.code == 0 || !strings.Contains(a.stderr, "[policies-self/LimitExceeded] RegoPolicy endless: its rehearsal did not finish within ") ||
				!strings.Contains(a.stderr, "last step: running test team.endless_test.test_endless (endless/quota_test.rego:5)") {
				t.Errorf("kubectl says %s", a.stderr)
			}
			if requests == 0 {
				t.Error("no request was answered")
			}
			// Whether the memory or the time ends first depends on the machine; webhooks/testrun tests each.
			p.denied(p.once(text(t, huge), create...), create, "[policies-self/LimitExceeded] RegoPolicy huge: its rehearsal ", "last step: running test team.huge_test.test_huge (huge/quota_test.rego:")
			p.refused(text(t, repeated), create, "[policies-self/CompileFailed] RegoPolicy repeated does not compile: repeated/quota_test.rego:", ": this repeats other values so often")
			return
		default:
			slowest = max(slowest, admin(t).may(machine("web"), "create", "--dry-run=server", "-f", "-").took)
		}
	}
}

func TestLibraries(t *testing.T) {
	depth.Only(t)
	p := bob(t)
	forget(t, "later")
	forget(t, "lib-names")
	lib := &v1alpha1.RegoPolicy{}
	lib.Name = "lib-names"
	lib.Spec = v1alpha1.RegoPolicySpec{
		Package: "sallyport.lib.names", Library: true,
		Modules: []v1alpha1.PolicyModule{{Name: "names.rego", Source: "package sallyport.lib.names\n\ntaken(name) if name == \"root\"\n"}},
		Tests:   []v1alpha1.PolicyTest{{Name: "names_test.rego", Source: "package sallyport.lib.names_test\n\nimport data.sallyport.lib.names\n\ntest_root if names.taken(\"root\")\n"}},
	}
	apply := []string{"apply", "--server-side", "-f", "-"}
	later := quota("later", module("_taken(name) if name == \"root\"", "_taken(name) if data.sallyport.lib.names.taken(name)"))
	a := p.may(text(t, later), apply...)
	if want := "Warning: RegoPolicy later has unresolved library references: sallyport.lib.names.taken; " +
		"the policy is not used, and its tests do not run, until a library provides them"; !strings.Contains(a.stderr, want) {
		t.Errorf("kubectl warns %q", a.stderr)
	}
	shows(t, "later", v1alpha1.ConditionActive, v1alpha1.ReasonLibraryMissing)
	shows(t, "later", v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsNotRun)
	p.may(text(t, lib), apply...)
	shows(t, "later", v1alpha1.ConditionActive, v1alpha1.ReasonCurrentRevision)
	shows(t, "later", v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsPassed)

	p.refused(edited(t, "lib-names", "taken(name)", "used(name)"), replace,
		"[policies-self/CompileFailed] RegoPolicy lib-names does not compile: lib-names/names_test.rego:5:14: undefined function data.sallyport.lib.names.taken",
		"[policies-self/BreaksPolicy] RegoPolicy later imports lib-names and would break: later/quota.rego:15:17: undefined function data.sallyport.lib.names.taken")
	changed := get(t, "lib-names")
	changed.Spec.Modules[0].Source = strings.Replace(changed.Spec.Modules[0].Source, `"root"`, `"rooted"`, 1)
	changed.Spec.Tests[0].Source = strings.Replace(changed.Spec.Tests[0].Source, `"root"`, `"rooted"`, 1)
	untested := func() { shows(t, "later", v1alpha1.ConditionTestsPassed, v1alpha1.ReasonTestsFailed) }
	p.refusedInTime(text(t, changed), text(t, get(t, "lib-names")), replace, untested,
		"[policies-self/BreaksPolicy] RegoPolicy later imports lib-names and would break: its tests would fail: later/quota_test.rego:")
	p.refused("", []string{"delete", "regopolicy", "lib-names"}, "[policies-self/BreaksPolicy] RegoPolicy later")
	p.may(edited(t, "lib-names", "taken(name)", "# So are these.\n\nused(name) if name == \"x\"\n\ntaken(name)"), replace...)
	shows(t, "later", v1alpha1.ConditionActive, v1alpha1.ReasonCurrentRevision)
	p.may("", "delete", "regopolicy", "later")
	p.Eventually("the library has no user", func() bool { return p.try("", "delete", "regopolicy", "lib-names").code == 0 })

	// The shipped library, whose users are shipped too.
	p.refused(edited(t, "lib-operations", "key(", "kee("), replace, "[policies-self/TestsFailed] 3 tests of RegoPolicy lib-operations failed:", "sallyport.lib.operations_test.test_known")
}

// Several at once: all are answered, whether there was room for them or not.
func TestManyEditsAtOnce(t *testing.T) {
	depth.Only(t)
	p := bob(t)
	const all = 6
	answers := make(chan answer, all)
	began := time.Now()
	for i := range all {
		forget(t, fmt.Sprintf("many-%d", i))
		go func() { answers <- p.try(text(t, quota(fmt.Sprintf("many-%d", i))), "create", "-f", "-") }()
	}
	busy := 0
	for range all {
		switch a := <-answers; {
		case a.code == 0:
		case strings.Contains(a.stderr, "too many RegoPolicies are being rehearsed at the same time; try again"):
			busy++
		default:
			t.Errorf("kubectl says %s", a.stderr)
		}
	}
	t.Logf("%d were written and %d found no room, in %d ms", all-busy, busy, time.Since(began).Milliseconds())
	if busy == all {
		t.Error("nothing was written")
	}
}
