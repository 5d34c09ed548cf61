package catalog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// tabled is a policy with parameters and a schema for them.
func tabled(parameters, schema string) v1alpha1.RegoPolicy {
	p := stored(policy("tabled", "apps/v1/deployments UPDATE"), "uid-tabled")
	if parameters != "" {
		p.Spec.Parameters = &runtime.RawExtension{Raw: []byte(parameters)}
	}
	if schema != "" {
		p.Spec.ParametersSchema = &runtime.RawExtension{Raw: []byte(schema)}
	}
	return p
}

const quotas = `{
	"type": "object", "required": ["teams"],
	"properties": {
		"teams": {"type": "object", "additionalProperties": {
			"type": "object", "required": ["most"],
			"properties": {
				"most": {"type": "integer", "minimum": 1}, "who": {"type": "string", "enum": ["ops", "dev"]},
				"names": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 3}}
			},
			"x-kubernetes-validations": [{"rule": "self.most < 100 || self.who == 'ops'", "message": "only ops may have 100"}]
		}},
		"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
}`

func TestParametersAreHeldAgainstTheirSchema(t *testing.T) {
	for name, tc := range map[string]struct {
		parameters, schema string
		want               []string
	}{
		"as they should be":  {`{"teams": {"a": {"most": 5, "who": "ops", "names": ["x"]}}, "free": {"as": ["you", 2, null]}}`, quotas, nil},
		"no schema":          {`{"anything": 1}`, "", nil},
		"no parameters":      {"", `{"type": "object"}`, nil},
		"a missing field":    {`{"teams": {"a": {}}}`, quotas, []string{"spec.parameters.teams.a.most: Required value"}},
		"nothing at all":     {"", quotas, []string{"spec.parameters.teams: Required value"}},
		"wrong types":        {`{"teams": {"a": {"most": "5"}, "b": 7}}`, quotas, []string{`spec.parameters.teams.a.most: Invalid value: "string"`, `spec.parameters.teams.b: Invalid value: "integer"`}},
		"too small":          {`{"teams": {"a": {"most": 0}}}`, quotas, []string{"spec.parameters.teams.a.most: Invalid value: 0"}},
		"not of the list":    {`{"teams": {"a": {"most": 1, "who": "me"}}}`, quotas, []string{`spec.parameters.teams.a.who: Unsupported value: "me": supported values: "ops", "dev"`}},
		"twice in a set":     {`{"teams": {"a": {"most": 1, "names": ["x", "x"]}}}`, quotas, []string{`spec.parameters.teams[a].names[1]: Duplicate value: "x"`}},
		"too long":           {`{"teams": {"a": {"most": 1, "names": ["x", "long"]}}}`, quotas, []string{"spec.parameters.teams.a.names[1]: Too long"}},
		"a misspelt field":   {`{"teams": {"a": {"most": 1, "woh": "me"}}, "taems": {}}`, quotas, []string{"spec.parameters.taems: unknown field", "spec.parameters.teams.a.woh: unknown field"}},
		"a rule in CEL":      {`{"teams": {"a": {"most": 100, "who": "dev"}}}`, quotas, []string{"spec.parameters.teams[a]: Invalid value: only ops may have 100"}},
		"no schema by far":   {"", `{"type": 7}`, []string{"spec.parametersSchema is not a schema: json:"}},
		"an unknown word":    {"", `{"type": "object", "requierd": ["teams"]}`, []string{`spec.parametersSchema is not a schema: json: unknown field "requierd"`}},
		"what weakens":       {`{"who": ["a"]}`, `{"type": "object", "properties": {"who": {"type": "array", "x-sallyport-weakens": "Added", "items": {"type": "string"}}}}`, nil},
		"what weakens how":   {"", `{"type": "object", "properties": {"who": {"type": "string", "x-sallyport-weakens": "More"}}}`, []string{"spec.parametersSchema is not a schema: x-sallyport-weakens is More, but must be Added or Removed"}},
		"what weakens where": {"", `{"type": "object", "properties": {"who": {"type": "array", "items": {"type": "string", "x-sallyport-weakens": "Added"}}}}`, []string{"spec.parametersSchema is not a schema: x-sallyport-weakens is below items, but must belong to a named parameter"}},
		"a missing type":     {"", `{"properties": {"a": {}}}`, []string{"spec.parametersSchema is not a schema: [spec.parametersSchema.properties[a].type: Required value"}},
		"of a list":          {"", `{"type": "array", "items": {"type": "string"}}`, []string{`spec.parametersSchema is not a schema: spec.parametersSchema.type: Invalid value: "array"`}},
		"with a default": {"", `{"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}`,
			[]string{"spec.parametersSchema is not a schema: it has a default, but parameters come only from spec.parameters"}},
		"a rule that is no CEL": {"{}", `{"type": "object", "x-kubernetes-validations": [{"rule": "self.. < 1"}]}`, []string{`spec.parameters: Invalid value: "object": rule compile error: compilation failed: ERROR: <input>:1:6: Syntax error`}},
	} {
		t.Run(name, func(t *testing.T) {
			object := tabled(tc.parameters, tc.schema)
			b := build(t, &Catalog{}, nil, object)
			if tc.want == nil {
				b.check(t, "tabled", "current", "")
				return
			}
			b.check(t, "tabled", "broken", v1alpha1.ReasonParametersInvalid)
			lines := strings.Split(b.states["tabled"].Err.Error(), "\n")[1:]
			for i, want := range tc.want {
				if i >= len(lines) || !strings.HasPrefix(lines[i], "tabled: "+want) {
					t.Errorf("got %q, want %q in line %d", lines, want, i)
				}
			}
			if len(lines) != len(tc.want) {
				t.Errorf("got %q", lines)
			}
			if err := Sources([]v1alpha1.RegoPolicy{object})[0].Check(); err == nil || err.Error() != b.states["tabled"].Err.Error() {
				t.Errorf("a check says %v", err)
			}
		})
	}
}

// What is wrong with the text is told first, and the schema, which names the field, before the policy's own rule.
func TestParametersComeAfterTheText(t *testing.T) {
	object := tabled(`{"teams": {}}`, `{"type": "object", "properties": {"teams": {"type": "integer"}}}`)
	rule := "\n# METADATA\n# description: It is five.\nvalid_parameters if data.parameters.teams == 5\n"
	text := object.Spec.Modules[0].Source
	for name, tc := range map[string]struct {
		source  string
		schema  bool
		problem v1alpha1.ConditionReason
		want    string
	}{
		"the text":   {text + nonsense, true, v1alpha1.ReasonCompileFailed, "unexpected eof"},
		"the schema": {text + rule, true, v1alpha1.ReasonParametersInvalid, "spec.parameters.teams: Invalid value"},
		"the rule":   {text + rule, false, v1alpha1.ReasonParametersInvalid, "spec.parameters are not valid; required: It is five."},
	} {
		o := *object.DeepCopy()
		o.Spec.Modules[0].Source = tc.source
		if !tc.schema {
			o.Spec.ParametersSchema = nil
		}
		b := build(t, &Catalog{}, nil, o)
		b.check(t, "tabled", "broken", tc.problem)
		if err := b.states["tabled"].Err; err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A table that breaks leaves the last good one, and a schema alone is no other revision.
func TestLastGoodParametersDecide(t *testing.T) {
	c := &Catalog{}
	object := tabled(`{"n": 1}`, `{"type": "object", "properties": {"n": {"type": "integer"}}}`)
	good := build(t, c, nil, object)
	wrong := tabled(`{"n": "one"}`, string(object.Spec.ParametersSchema.Raw))
	wrong.Generation = 2
	b := build(t, c, nil, wrong)
	b.check(t, "tabled", "last good", v1alpha1.ReasonParametersInvalid)
	if diff := cmp.Diff(good.states["tabled"].ActiveHash, b.states["tabled"].ActiveHash); diff != "" {
		t.Error(diff)
	}
	free := tabled(`{"n": 1}`, "")
	free.Generation = 3
	b = build(t, c, nil, free)
	b.check(t, "tabled", "current", "")
	if diff := cmp.Diff(good.states["tabled"].ActiveHash, b.states["tabled"].ActiveHash); diff != "" {
		t.Error(diff)
	}
}
