package charts_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdconfig "sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/test/support/env/install"
)

// stricterFile lists the fields whose schema became stricter since the last release, and what becomes of objects stored before.
const stricterFile = "testdata/stricter.yaml"

// Every field whose schema became stricter since the last release is listed with what becomes of objects stored before. Since a revision that
// is no release, it may have been tried and taken back: what became stricter is only told.
func TestStricterFieldsAreListed(t *testing.T) {
	from, err := install.UpgradesFrom(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if from == "" {
		t.Skip("there is no release here, and " + install.FromVariable + " names no other revision")
	}
	var changes []string
	for _, now := range definitions(t) {
		if before := definitionAt(t, from, now); before != nil { // else the kind is new
			changes = append(changes, stricter(t, before, now)...)
		}
	}
	tell := t.Log
	if strings.HasPrefix(from, "v") {
		tell = func(args ...any) { t.Error(args...) }
	}
	text, err := os.ReadFile(stricterFile)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	if err := yaml.UnmarshalStrict(text, &listed); err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		if listed[change] == "" {
			tell(fmt.Sprintf("stricter than in %s. If this is meant, add to %s what becomes of objects stored before:\n%q:", from, stricterFile, change))
		}
	}
	for change := range listed {
		if !slices.Contains(changes, change) {
			tell(fmt.Sprintf("not stricter than in %s, but listed in %s: %s", from, stricterFile, change))
		}
	}
}

// Whatever a stored object may have that a newer definition does not take is found, and nothing else.
func TestStricterFieldsAreFound(t *testing.T) {
	type props = apiextensionsv1.JSONSchemaProps
	few, pattern := int64(1), "^a$"
	for want, change := range map[string]func(spec map[string]props, size, phase *props){
		"": func(spec map[string]props, size, phase *props) {
			spec["new"] = props{Type: "object", Required: []string{"a"}, Properties: map[string]props{"a": {Type: "string", MaxLength: &few}}}
			size.Description, phase.Enum = "other words", append(phase.Enum, apiextensionsv1.JSON{Raw: []byte(`"New"`)})
			size.Minimum, size.XValidations = nil, size.XValidations[:1]
		},
		"VirtualDisk existingFieldRemoval: removed field : v1alpha1.^.spec.source.image.name": func(spec map[string]props, _, _ *props) {
			image := spec["source"].Properties["image"]
			delete(image.Properties, "name")
		},
		"VirtualDisk spec.size maxLength: maximum decreased : 19 -> 1": func(_ map[string]props, size, _ *props) { size.MaxLength = &few },
		"VirtualDisk spec.size pattern: pattern changed":               func(_ map[string]props, size, _ *props) { size.Pattern = pattern },
		"VirtualDisk spec.size rules: new rule: self != 7": func(_ map[string]props, size, _ *props) {
			size.XValidations = append(size.XValidations, apiextensionsv1.ValidationRule{Rule: "self != 7"})
		},
		"VirtualDisk status.phase enum: allowed enum values removed": func(_ map[string]props, _, phase *props) { phase.Enum = phase.Enum[1:] },
		"VirtualDisk status.phase type: type changed":                func(_ map[string]props, _, phase *props) { phase.Type = "integer" },
		"VirtualDisk status.phase unhandled: unhandled changes":      func(_ map[string]props, _, phase *props) { phase.Format = "uuid" },
		"VirtualDisk spec.source required: new required fields": func(spec map[string]props, _, _ *props) {
			source := spec["source"]
			source.Required = append(source.Required, "b")
			spec["source"] = source
		},
	} {
		before := definitionOf(t, "VirtualDisk")
		now := before.DeepCopy()
		all := now.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
		size, phase := all["spec"].Properties["size"], all["status"].Properties["phase"]
		change(all["spec"].Properties, &size, &phase)
		all["spec"].Properties["size"], all["status"].Properties["phase"] = size, phase
		found := stricter(t, before, now)
		if ok := slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, want) }); ok == (want == "") {
			t.Errorf("%q, want one of %q", found, want)
		}
	}
}

// definitionAt gives a definition as it is in another revision, or nil if that has none of this name.
func definitionAt(t *testing.T, revision string, now *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	folder := revision + ":charts/sallyport/files/crds/"
	names, err := git(t, "ls-tree", "--full-tree", "--name-only", folder)
	if err != nil || len(names) == 0 {
		t.Fatalf("%v; found are %q", err, names)
	}
	name := now.Spec.Group + "_" + now.Spec.Names.Plural + ".yaml"
	if !slices.Contains(strings.Fields(string(names)), name) {
		return nil
	}
	text, err := git(t, "show", folder+name)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

func git(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	var out, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), "git", args...)
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, &errs)
	}
	return out.Bytes(), nil
}

// stricter tells what a stored object may have that the newer definition does not take, one line for each.
func stricter(t *testing.T, before, now *apiextensionsv1.CustomResourceDefinition) (changes []string) {
	t.Helper()
	r, err := comparison()
	if err != nil {
		t.Fatal(err)
	}
	results := r.Run(before, now)
	add := func(property string, all []validations.ComparisonResult) {
		for _, result := range all {
			for _, e := range result.Errors {
				changes = append(changes, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s: %s", now.Spec.Names.Kind, property, result.Name, e)), " "))
			}
		}
	}
	add("", results.CRDValidation)
	for _, version := range results.SameVersionValidation {
		for _, property := range version.PropertyComparisons {
			add(strings.TrimPrefix(property.Property, "^."), property.ComparisonResults)
		}
	}
	slices.Sort(changes)
	return changes
}

// comparison compares definitions. Other words in a description are no stricter, nor is a further value of an enum.
var comparison = sync.OnceValues(func() (*runner.Runner, error) {
	registry := runner.DefaultRegistry()
	registry.Register(newRules{}.Name(), func(map[string]any) (validations.Validation, error) { return newRules{}, nil })
	return runner.New(&crdconfig.Config{
		UnhandledEnforcement: crdconfig.EnforcementPolicyError,
		Validations: []crdconfig.ValidationConfig{
			{Name: "description", Enforcement: crdconfig.EnforcementPolicyNone},
			{Name: "enum", Enforcement: crdconfig.EnforcementPolicyError, Configuration: map[string]any{"additionPolicy": "Allow"}},
		},
	}, registry)
})

// newRules finds CEL rules that a field did not have before, which crdify has no validation for.
type newRules struct{}

func (newRules) Name() string { return "rules" }

func (newRules) SetEnforcement(crdconfig.EnforcementPolicy) {}

func (r newRules) Compare(before, now *apiextensionsv1.JSONSchemaProps) validations.ComparisonResult {
	result := validations.ComparisonResult{Name: r.Name()}
	for _, rule := range now.XValidations {
		if !slices.ContainsFunc(before.XValidations, func(b apiextensionsv1.ValidationRule) bool { return b.Rule == rule.Rule }) {
			result.Errors = append(result.Errors, "new rule: "+rule.Rule)
		}
	}
	before.XValidations, now.XValidations = nil, nil
	return result
}
