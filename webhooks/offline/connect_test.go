package offline_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	. "sallyport.dev/sallyport/webhooks/offline"
)

// sealed keeps everybody out of Pods with a label, and shells out of all.
const sealed = `
# METADATA
# title: Sealed Pods
# description: Nobody connects to them.
package example.sealed

valid_input if is_object(input.request)

facts.pod := {"parent": true}

# METADATA
# title: It is sealed
# custom: {reason: Sealed, remedy: Read its log.}
deny contains {"reason": "Sealed", "code": 403, "message": $"{input.request.name} is sealed against {input.request.kind.kind}"} if {
	input.facts.pod.metadata.labels.sealed == "true"
}

# METADATA
# title: It is a shell
# custom: {reason: Shell, remedy: Run the program itself.}
deny contains {"reason": "Shell", "code": 403, "message": $"{input.request.object.command[0]} in {input.request.object.container}"} if {
	input.request.object.command[0] == "sh"
	input.request.oldObject == null
}
`

// What somebody connects to is judged as the API server asks about it.
func TestConnections(t *testing.T) {
	p := v1alpha1.RegoPolicy{Spec: v1alpha1.RegoPolicySpec{
		Package: "example.sealed",
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"},
			Operations: []v1alpha1.MatchOperation{v1alpha1.MatchConnect},
		}}},
		Reads:   []v1alpha1.PolicyRead{{APIVersion: "v1", Kind: "Pod", Freshness: v1alpha1.ReadLive}},
		Modules: []v1alpha1.PolicyModule{{Name: "sealed.rego", Source: sealed}},
	}}
	p.Name = "sealed"
	set, err := catalog.Compile([]v1alpha1.RegoPolicy{p})
	if err != nil {
		t.Fatal(err)
	}
	const state = "{apiVersion: v1, kind: Pod, metadata: {name: db, labels: {sealed: \"true\"}}, spec: {containers: [{name: c, image: x}]}}"
	web := strings.NewReplacer("db", "web", "true", "false").Replace(state)
	to := func(subresource string, command ...string) func(*Request) {
		return func(r *Request) { r.Subresource, r.Command = subresource, command }
	}
	for name, tc := range map[string]struct {
		file    string
		how     func(*Request)
		verdict Verdict
		text    string
	}{
		"exec":                      {state, to("exec", "date"), Denied, "[sealed/Sealed] db is sealed against PodExecOptions"},
		"attach":                    {state, to("attach"), Denied, "[sealed/Sealed] db is sealed against PodAttachOptions"},
		"port-forward":              {state, to("portforward"), Denied, "[sealed/Sealed] db is sealed against PodPortForwardOptions"},
		"a proxy, unasked":          {state, to("proxy"), Admitted, ""},
		"a shell":                   {web, to("exec", "sh", "-c", "date"), Denied, "[sealed/Shell] sh in c"},
		"exec of what is not there": {web, to("exec", "date"), Admitted, "is not in the state; the object in"},
	} {
		t.Run(name, func(t *testing.T) {
			result := ask(t, reviewer(t, set, state), tc.file, tc.how)
			text := notesOf(result)
			if result.Status != nil {
				text = result.Status.Message
			}
			if result.Verdict != tc.verdict || !strings.Contains(text, tc.text) || result.Operation != "CONNECT" || result.Kind != "Pod" {
				t.Errorf("it is %+v, %q", result, text)
			}
		})
	}
}
