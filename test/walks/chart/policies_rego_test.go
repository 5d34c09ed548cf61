package chart

import (
	"fmt"
	"strings"
)

// policyOf is a RegoPolicy with one rule, and a test of it, as kubectl applies it. Spec goes before its modules.
func policyOf(name, spec, rules, test string) string {
	indent := func(text string) string {
		return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
	}
	pkg := "example." + strings.ReplaceAll(name, "-", "_")
	module := fmt.Sprintf(`
# METADATA
# title: What this is about
# description: A policy of a team's own.
package %s

valid_input if is_object(input.request)

%s`, pkg, strings.TrimSpace(rules))
	tests := fmt.Sprintf(`
package %s_test

import data.%s as policy

%s`, pkg, pkg, strings.TrimSpace(test))
	return fmt.Sprintf(`apiVersion: sallyport.dev/v1alpha1
kind: RegoPolicy
metadata: {name: %s}
spec:
  package: %s
%s
  modules:
  - name: policy.rego
    source: |
%s
  tests:
  - name: policy_test.rego
    source: |
%s
`, name, pkg, strings.Trim(spec, "\n"), indent(module), indent(tests))
}

// denies is a rule with that reason, message and condition.
func denies(reason, message, condition string) string {
	return fmt.Sprintf(`
# METADATA
# title: What is refused
# custom: {reason: %s, remedy: See the message.}
deny contains {"reason": %q, "code": 403, "message": %q} if {
	%s
}`, reason, reason, message, condition)
}

// tested is a test that an input is refused by one denial.
func tested(input string) string {
	return fmt.Sprintf(`test_refused[note] if {
	some note, request in {"the one": %s}
	count(policy.deny) == 1 with input as {"request": request}
}`, input)
}

// owners refuses Deployments without an owner.
func owners(name, more string) string {
	return policyOf(name, more+`
  match:
    resources: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE, UPDATE]}]
`, denies("OwnerMissing", "label owner is missing", `not input.request.object.metadata.labels.owner`),
		tested(`{"object": {"metadata": {"name": "x"}}}`))
}

// paused refuses to take replicas away, by the subresource and by the object.
var shrinks = policyOf("shrinks", `
  match:
    resources: [{apiGroups: [apps], apiVersions: ["*"], resources: [deployments/scale], operations: [UPDATE]}]
`, denies("Shrinks", "no replicas are taken away", `input.request.object.spec.replicas < input.request.oldObject.spec.replicas`),
	tested(`{"object": {"spec": {"replicas": 1}}, "oldObject": {"spec": {"replicas": 2}}}`))

// kept refuses deletions, but those of some.
var kept = policyOf("kept", `
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [DELETE]}]
    namespaceSelector: {matchLabels: {keep: "true"}}
    excludeNamespaces: [kept-not]
    excludeUsers: ["system:serviceaccount:kube-system:namespace-controller", bob]
    excludeGroups: [janitors]
`, denies("Kept", "it is kept", `input.request.oldObject.metadata.name != "kube-root-ca.crt"`), tested(`{"oldObject": {"metadata": {"name": "x"}}}`))

// pods would refuse every Pod if nobody answered.
var pods = policyOf("pods", `
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE, DELETE]}]
`, denies("NoBareName", "a Pod is called bare", `input.request.object.metadata.name == "bare"`), tested(`{"object": {"metadata": {"name": "bare"}}}`))

// marks changes Deployments, and refuses those that it has not changed.
var marks = policyOf("marks", `
  match:
    resources: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]
`, `
patch contains {"op": "add", "path": "/metadata/annotations", "value": {"marked": "true"}} if {
	not input.request.object.metadata.annotations
}

patch contains {"op": "add", "path": "/metadata/annotations/marked", "value": "true"} if {
	input.request.object.metadata.annotations
}
`+denies("NotMarked", "it was not changed", `not input.request.object.metadata.annotations.marked`), tested(`{"object": {"metadata": {"name": "x"}}}`))

// lenient lets pass what nobody could judge.
var lenient = policyOf("lenient", `
  onError: Allow
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE]}]
`, denies("NoBareName", "a Service is called bare", `input.request.object.metadata.name == "bare"`), tested(`{"object": {"metadata": {"name": "bare"}}}`))
