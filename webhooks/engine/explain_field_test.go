package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is not understood is named, wherever a policy comes by it, and never by what others have written (kyverno#11055).
func TestFieldsThatAreNotUnderstoodAreNamed(t *testing.T) {
	const ok = "valid_input := true\n\n"
	for name, tc := range map[string]struct{ rules, request, want string }{
		"null":           {"valid_input if is_string(input.request.object.metadata.name)", `{"object": {"metadata": {"name": null}}}`, "metadata.name is null"},
		"missing":        {"valid_input if is_string(input.request.object.metadata.name)", `{"object": {"metadata": {}}}`, "metadata.name is missing"},
		"a parent of it": {"valid_input if is_string(input.request.object.metadata.name)", `{"object": {}}`, "metadata.name is missing"},
		"a wrong word":   {`valid_input if input.request.operation in {"CREATE", "UPDATE"}`, `{"operation": "DELETE"}`, "operation is a string that the policy does not understand"},
		"an empty one":   {`valid_input if input.request.object.a != ""`, `{"object": {"a": ""}}`, "a is empty"},
		"the request":    {"valid_input if is_object(input.request.object)", `{"object": []}`, "object is a list"},
		"the old object": {"valid_input if {\n\tsome o in [input.request.object, input.request.oldObject]\n\tis_number(input.request.oldObject.spec.n)\n\to == 1\n}",
			`{"object": {}, "oldObject": {"spec": {"n": true}}}`, "oldObject.spec.n is a boolean"},
		"by a local":    {"valid_input if {\n\ts := input.request.object.spec\n\tis_string(s.name)\n}", `{"object": {"spec": {"name": 3}}}`, "spec.name is a number"},
		"by a rule":     {"valid_input if _known\n\n_known if is_string(_spec.name)\n\n_spec := input.request.object.spec", `{"object": {"spec": {"name": []}}}`, "spec.name is a list"},
		"by a function": {"valid_input if {\n\t_text(input.request.object.a)\n\t_text(input.request.object.b)\n}\n\n_text(x) if is_string(x)", `{"object": {"a": "", "b": null}}`, "b is null"},
		"by two functions": {"valid_input if _known(input.request.object)\n\n_known(o) if _text(object.get(o, [\"metadata\", \"labels\"], {}))\n\n_text(x) if is_object(x)",
			`{"object": {"metadata": {"labels": null}}}`, "metadata.labels is null"},
		"by every": {"valid_input if every d in input.request.object.spec.disks { is_string(d.size) }", `{"object": {"spec": {"disks": [{"size": "1"}, {"size": 2}]}}}`,
			"spec.disks[1].size is a number"},
		"by a path that is not told": {"valid_input if is_number(object.get(input.request.object, input.request.path, null))", `{"path": ["spec", "n"], "object": {"spec": {"n": "2"}}}`,
			"spec.n is a string that the policy does not understand"},
		"by key": {"valid_input if every _, v in input.request.object.metadata.annotations { is_string(v) }",
			`{"object": {"metadata": {"annotations": {"a": "", "example.com/b": null}}}}`, "metadata.annotations[example.com/b] is null"},
		"of others":          {"valid_input if every _, v in input.request.oldObject.annotations { is_string(v) }", `{"oldObject": {"annotations": {"secret": 1}}}`, "oldObject.annotations[] is a number"},
		"an answer":          {"facts.all := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\", \"namespace\": \"n\"}\n\nvalid_input if every l in input.facts.all { is_string(l.reader) }", `{}`, "facts.all[].reader is a number"},
		"of a fact":          {ok + `facts.x := {"apiVersion": "toy/v1", "kind": "Loan", "namespace": "n", "name": input.request.object.spec.book}`, `{"object": {"spec": {}}}`, "spec.book is missing"},
		"of a fact's reason": {ok + "facts.x := null if is_string(input.request.object.spec.book)", `{"object": {"spec": {"book": null}}}`, "spec.book is null"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustCompile(t, policy(tc.rules+"\n\nwarn contains \"w\" if true\n"))
			_, err := p.Decide(t.Context(), input(t, tc.request), &shelf{cached: map[string]any{"all": []any{map[string]any{"reader": "r"}, map[string]any{"reader": 7}}}})
			wantCause(t, err, InputNotUnderstood, ": "+tc.want)
			if err != nil && !strings.HasSuffix(err.Error(), ": "+tc.want) {
				t.Errorf("got %q, want it to end with %q", err, tc.want)
			}
		})
	}
}

// Naming a field costs little, whatever somebody sends; without a name the error is what it was.
func TestNamingAFieldIsBounded(t *testing.T) {
	p := mustCompile(t, policy("valid_input if {\n\tevery a in input.request.a { every b in input.request.a { is_number(a + b) } }\n\tis_string(input.request.b)\n}\n\nwarn contains \"w\" if true\n"))
	request := `{"a": [` + strings.TrimSuffix(strings.Repeat("1,", 300), ",") + `]}`
	in := input(t, request)
	start := time.Now()
	_, err := p.Decide(t.Context(), in, &shelf{})
	t.Logf("%v", time.Since(start))
	wantCause(t, err, InputNotUnderstood, "valid_input does not hold")
	if strings.Contains(fmt.Sprint(err), "missing") {
		t.Errorf("90,000 evaluations were traced: %v", err)
	}
}
