package tools

import (
	"fmt"
	"strings"
	"testing"
)

// ownPolicy is a RegoPolicy of somebody's own, with metadata and the beginning of its spec.
func ownPolicy(metadata, spec string) string {
	return manifest("RegoPolicy", "name: own, "+metadata, "spec:\n  package: team.own\n"+spec+`  match: {resources: [{apiGroups: [apps], apiVersions: ["*"], resources: [deployments], operations: [CREATE]}]}
  modules:
  - name: own.rego
    source: |
      # METADATA
      # title: Own
      # description: Deployments are not called root.
      package team.own

      valid_input if is_string(input.request.object.metadata.name)

      # METADATA
      # title: The name is taken
      # custom: {reason: NameTaken, remedy: Take another one.}
      deny contains {"reason": "NameTaken", "message": "it is taken"} if input.request.object.metadata.name == "root"
  tests:
  - name: own_test.rego
    source: |
      package team.own_test

      import data.team.own

      test_root if count(own.deny) == 1 with input.request.object.metadata.name as "root"
`)
}

// A RegoPolicy is reviewed as a cluster would: it is compiled among the others, and its tests are run.
func TestReviewOfPolicies(t *testing.T) {
	const shipped = `labels: {sallyport.dev/shipped: "true"}`
	right := func(policy string, allowed bool) string {
		return fmt.Sprintf("apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nspec: {user: alice, resourceAttributes: {verb: override, "+
			"group: sallyport.dev, resource: regopolicies, name: %s}}\nstatus: {allowed: %t}\n", policy, allowed)
	}
	folder(t, map[string]string{
		"own.yaml":       ownPolicy("", ""),
		"typo.yaml":      strings.Replace(ownPolicy("", ""), "input.request.object.metadata.name ==", "input.request.objct.metadata.name ==", 1),
		"pattern.yaml":   strings.Replace(ownPolicy("", ""), "match: {", `match: {excludeNamespaces: ["kube-*"], `, 1),
		"singular.yaml":  strings.Replace(ownPolicy("", ""), "[deployments]", "[deployment]", 1),
		"failing.yaml":   strings.Replace(ownPolicy("", ""), `== "root"`, `!= "root"`, 1),
		"audit.yaml":     ownPolicy(shipped, "  mode: Audit\n"),
		"unchecked.yaml": strings.Replace(ownPolicy(`annotations: {sallyport.dev/unchecked: "INC-7"}`, ""), "package team.own\n", "package\n", 1),
		"shipped.yaml":   ownPolicy(shipped, ""),
		"may.yaml":       right("own", true), "maynot.yaml": right("own", false), "mayself.yaml": right("policies-self", true),
		"lib.yaml": manifest("RegoPolicy", "name: lib-own", `spec:
  package: sallyport.lib.own
  library: true
  modules: [{name: own.rego, source: "package sallyport.lib.own\n\nup(x) := upper(x)\n"}]
  tests: [{name: own_test.rego, source: "package sallyport.lib.own_test\n\nimport data.sallyport.lib.own\n\ntest_up if own.up(\"a\") == \"A\"\n"}]
`),
		"importing.yaml": strings.Replace(ownPolicy("", ""), `== "root"`, `== lower(data.sallyport.lib.own.up("root"))`, 1),
	})
	for name, tc := range map[string]struct {
		args  string
		code  int
		texts []string
	}{
		"in order":                   {"-f own.yaml -v", 0, []string{"own created", "policy policies-self (validate, Enforce): allowed"}},
		"a typo":                     {"-f typo.yaml --state own.yaml", 1, []string{"[policies-self/CompileFailed] RegoPolicy own does not compile: own/own.rego:11:", "undefined ref: input.request.objct"}},
		"a pattern for a namespace":  {"-f pattern.yaml", 1, []string{"The RegoPolicy \"own\" is invalid: spec.match.excludeNamespaces[0]: Invalid value: \"kube-*\"", "pattern.yaml:6"}},
		"what there is not":          {"-f singular.yaml", 0, []string{"Warning: RegoPolicy own is not evaluated for every resource that it matches: spec.match.resources[0].resources[0]: there is no deployment.apps; did you mean deployments.apps?"}},
		"a failing test":             {"-f failing.yaml", 1, []string{"[policies-self/TestsFailed] 1 test of RegoPolicy own failed:\n", "own/own_test.rego:5: team.own_test.test_root: failed"}},
		"weakened by right":          {"-f audit.yaml --state shipped.yaml,may.yaml --as alice", 0, []string{"own replaced"}},
		"weakened without":           {"-f audit.yaml --state shipped.yaml,maynot.yaml --as alice", 1, []string{"[policies-self/Weakened] RegoPolicy own: this change is not allowed because it would weaken a policy that is shipped with Sallyport (spec.mode from Enforce to Audit"}},
		"weakened by nobody knows":   {"-f audit.yaml --state shipped.yaml", 2, []string{"UNDECIDED", "FactUnavailable", `"verb":"override"`}},
		"one of a missing library":   {"-f importing.yaml", 0, []string{"Warning: RegoPolicy own has unresolved library references: sallyport.lib.own.up;"}},
		"one of a library before it": {"-f lib.yaml,importing.yaml -v", 0, []string{"lib-own created", "own created"}},
		"a library that is needed":   {"-f lib.yaml --operation DELETE --state lib.yaml,importing.yaml", 1, []string{"[policies-self/BreaksPolicy] RegoPolicy own imports lib-own and would break: own/own.rego:11:"}},
		"unchecked by right":         {"-f unchecked.yaml --state mayself.yaml --as alice -v", 0, []string{"its matchCondition is-not-unchecked-by-who-may excludes this request"}},
		"unchecked without":          {"-f unchecked.yaml --state maynot.yaml --as alice", 1, []string{"[policies-self/CompileFailed]"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := executeWith(t, "", append([]string{"review"}, strings.Fields(tc.args)...)...)
			if code != tc.code {
				t.Errorf("exit %d, want %d", code, tc.code)
			}
			for _, text := range tc.texts {
				if !strings.Contains(out+errs, text) {
					t.Errorf("%q is not said", text)
				}
			}
			if t.Failed() {
				t.Logf("%s%s", out, errs)
			}
		})
	}
}

// What the API server would not ask is not in order, and not reviewed as if it were asked; what no cluster has is warned of.
func TestPoliciesThatNobodyAsks(t *testing.T) {
	with := func(match string) string {
		return strings.Replace(ownPolicy("", ""), "match: {", "match: {"+match+", ", 1)
	}
	folder(t, map[string]string{
		"pattern.yaml": with(`excludeNamespaces: ["kube-*"]`), "slip.yaml": with(`conditions: [{name: a, expression: "object.metadata.name =="}]`),
		"never.yaml":    strings.NewReplacer("[apps]", "[coordination.k8s.io]", "[deployments]", "[leases]").Replace(ownPolicy("", "")),
		"singular.yaml": strings.Replace(ownPolicy("", ""), "[deployments]", "[deployment]", 1),
		"selector.yaml": with("namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}"),
		"root.yaml":     "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: root, namespace: team}\n",
	})
	for file, text := range map[string]string{
		"pattern.yaml":  `pattern.yaml:6: spec.match.excludeNamespaces[0]: Invalid value: "kube-*"`,
		"slip.yaml":     "slip.yaml:1: spec.match.conditions[0].expression: Invalid value: compilation failed: ERROR: <input>:1:24: Syntax error",
		"never.yaml":    "never.yaml:1: spec.match.resources[0].resources[0], leases.coordination.k8s.io: nodes and leaders renew Leases to show that they are alive",
		"selector.yaml": `selector.yaml:1: policy own: spec.match: namespaceSelector: "Is" is not a valid label selector operator`,
	} {
		if out, errs, code := execute(t, "policy", "check", file); code != 1 || !strings.Contains(out, text) {
			t.Errorf("check %s: exit %d: %s%s", file, code, out, errs)
		}
		if out, errs, code := execute(t, "review", "-f", "root.yaml", "--policies", file); code != 2 || !strings.Contains(errs, text) {
			t.Errorf("review with %s: exit %d: %s%s", file, code, out, errs)
		}
	}
	const missed = "policy own is not evaluated for everything in its spec.match: spec.match.resources[0].resources[0]: there is no deployment.apps; did you mean deployments.apps?"
	if out, errs, code := execute(t, "policy", "check", "singular.yaml"); code != 0 || !strings.Contains(out, "singular.yaml:1: warning: "+missed) {
		t.Errorf("check: exit %d: %s%s", code, out, errs)
	}
	if out, errs, code := execute(t, "review", "-f", "root.yaml", "--policies", "singular.yaml"); code != 0 || !strings.Contains(out+errs, missed) {
		t.Errorf("review: exit %d: %s%s", code, out, errs)
	}
}
