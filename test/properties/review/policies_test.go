package review

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/testrun"
)

// program is sallyport, in whose children policies are tried.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sallyport-review-")
	if err != nil {
		return "", err
	}
	return install.Build(context.Background(), dir, "sallyport.dev/sallyport/cmd/sallyport")
})

// tries has RegoPolicies tried among those that are stored.
func testRunner(t *testing.T) func(func(context.Context) ([]v1alpha1.RegoPolicy, error)) facts.TestRunner {
	t.Helper()
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return func(stored func(context.Context) ([]v1alpha1.RegoPolicy, error)) facts.TestRunner {
		return testrun.New(testrun.Options{
			World: stored, Process: testrun.Process{Command: []string{binary, testrun.Subcommand}, Memory: 256 << 20},
			Within: 20 * time.Second, Registry: prometheus.NewRegistry(),
		})
	}
}

// stored are the policies of the cluster: those that decide from the start, and those of requests.
func (c *cluster) stored(ctx context.Context) ([]v1alpha1.RegoPolicy, error) {
	list := &v1alpha1.RegoPolicyList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	return append(list.Items, c.objects...), nil
}

// regoPolicy is one about Deployments, with a test.
func (l *list) regoPolicy(name string) map[string]any {
	return parsed(l.t, `{"apiVersion": %q, "kind": "RegoPolicy", "metadata": {"name": %q}, "spec": {
		"package": "review.own", "mode": "Enforce", "onError": "Deny", "override": "Users", "timeoutMilliseconds": 2000, "library": false, "backgroundAudit": "Disabled",
		"match": {"resources": [{"apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["deployments"], "operations": ["CREATE"]}]},
		"modules": [{"name": "own.rego", "source": %q}], "tests": [{"name": "own_test.rego", "source": %q}]}}`, v1alpha1.GroupVersion, name, ownRego, ownTests)
}

const ownRego = `# METADATA
# title: Own
# description: Deployments are not called root.
package review.own

valid_input if is_string(input.request.object.metadata.name)

# METADATA
# title: The name is taken
# custom: {reason: NameTaken, remedy: Take another one.}
deny contains {"reason": "NameTaken", "message": "it is taken"} if input.request.object.metadata.name == "root"
`

const ownTests = `package review.own_test

import data.review.own

test_root if count(own.deny) == 1 with input.request.object.metadata.name as "root"
`

// regoPolicies are written, changed and deleted.
func (l *list) regoPolicies() {
	overrider := user{name: "olga", groups: []string{"overriders"}}
	rego := func(source string) []any { return []any{map[string]any{"name": "own.rego", "source": source}} }
	own := l.regoPolicy("own")
	l.add("a policy in order", admissionv1.Create, own)
	for what, object := range map[string]map[string]any{
		"a typo":                with(own, rego(ownRego+"\nx := \n"), "spec", "modules"),
		"a misspelt field":      with(own, rego(strings.Replace(ownRego, "request.object", "request.objct", 1)), "spec", "modules"),
		"no METADATA":           with(own, rego(strings.Replace(ownRego, "# title: Own\n", "", 1)), "spec", "modules"),
		"a failing test":        with(own, rego(strings.Replace(ownRego, `== "root"`, `!= "root"`, 1)), "spec", "modules"),
		"no tests":              with(own, nil, "spec", "tests"),
		"parameters without":    with(with(own, map[string]any{"a": "b"}, "spec", "parameters"), map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "integer"}}}, "spec", "parametersSchema"),
		"a schema that is none": with(own, map[string]any{"type": "objekt"}, "spec", "parametersSchema"),
		"a missing library":     with(own, rego(strings.Replace(ownRego, `== "root"`, `== data.sallyport.lib.names.root`, 1)), "spec", "modules"),
		"a bad selector":        with(own, map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Bogus"}}}, "spec", "match", "namespaceSelector"),
	} {
		l.add("a policy with "+what, admissionv1.Create, with(object, "new-"+strings.ReplaceAll(strings.ToLower(what), " ", "-"), "metadata", "name"))
	}
	l.add("another mode", admissionv1.Update, with(own, "Audit", "spec", "mode"))
	l.add("a typo in an edit", admissionv1.Update, with(own, rego("package"), "spec", "modules"))
	l.add("a label of ours", admissionv1.Update, with(own, "true", "metadata", "labels", "sallyport.dev/shipped"))
	shipped := with(own, "true", "metadata", "labels", "sallyport.dev/shipped")
	l.add("a weaker mode by somebody", admissionv1.Update, with(shipped, "Warn", "spec", "mode"))
	l.add("fewer operations by somebody", admissionv1.Update, with(shipped, []any{map[string]any{
		"apiGroups": []any{"apps"}, "apiVersions": []any{"*"}, "resources": []any{"deployments"}, "operations": []any{"DELETE"},
	}}, "spec", "match", "resources"))
	l.add("a weaker mode by who may", admissionv1.Update, with(shipped, "Warn", "spec", "mode"), by(overrider))
	l.add("an edit that nobody is to check, by somebody", admissionv1.Update, with(with(shipped, "INC-7", "metadata", "annotations", "sallyport.dev/unchecked"), rego("package"), "spec", "modules"))
	l.add("a deletion by somebody", admissionv1.Delete, shipped)
	l.add("a deletion by who may", admissionv1.Delete, shipped, by(overrider))
}

// answers are what the requester of a request may, as the state has it.
func (c *cluster) answers(t *testing.T, who user) (all []map[string]any) {
	t.Helper()
	for _, policy := range []string{"locks", "machines-abandon", "own", "policies-self"} {
		all = append(all, c.may(t, who, &authorizationv1.ResourceAttributes{
			Verb: "override", Group: v1alpha1.GroupName, Resource: "regopolicies", Name: policy,
		}))
	}
	return append(all, c.may(t, who, &authorizationv1.ResourceAttributes{ // the one that a request adopts
		Verb: "update", Group: "kubevirt.io", Resource: "virtualmachines", Namespace: "gold", Name: "new-1",
	}))
}
