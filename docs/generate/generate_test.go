package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/policies/describe"
)

// What somebody looks up is there: fields with what the API server says of them, reasons, and the words that fields hold.
func TestReference(t *testing.T) {
	constants, err := readConstants("../../" + apiFolder)
	if err != nil {
		t.Fatal(err)
	}
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	text, err := reference(crds, constants)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"a kind":                 "\n## VSphereServer\n\nVSphereServer is a vCenter for",
		"its short name":         "\n| short name | `svsrv` |\n| category | `sallyport` |\n| scope | cluster |\n",
		"a default":              "\n| `spec.terminationGracePeriodSeconds` | integer | `180` | How many seconds the guest",
		"what is required":       "\n| `spec.virtualMachineName` | string, required |  |",
		"bounds":                 "<br>*Valid:* 10 to 4000 |\n",
		"a rule":                 "“spec.migrate takes at most one of nodeName and nodeSelector”",
		"a rule of the object":   "\n| valid | “metadata.name must have at most 63 characters” |\n",
		"fields of list entries": "\n| `spec.tenants[].namespaces.names` | list of strings |  |",
		"some words of a type":   "\n| `spec.type` | [OperationType](#operationtype) (`Start`, `Stop`, `Restart`, `Migrate`, `Evict`), required |",
		"a word":                 "\n| `AlwaysOff` | Keeps the machine off. Every operation is denied. |\n",
		"a condition":            "\n| `PlacementSettled` | True when the machine is on the node",
		"a reason":               "\n| `RuntimeUnavailable` | `Ready=Unknown` or `Ready=False` | The runtime does not answer.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: the reference has no %q", what, want)
		}
	}
	for _, c := range append(ofType(constants, "ConditionReason"), ofType(constants, "ConditionType")...) {
		if !strings.Contains(text, "\n| `"+c.value+"` | ") {
			t.Errorf("the reference does not tell what %s means", c.value)
		}
	}
}

// A comment in a form that the reference does not understand must not be left out in silence.
func TestCommentsThatAreNotUnderstood(t *testing.T) {
	const block = "// Reasons of a RegoPolicy's conditions.\nconst (\n"
	for name, test := range map[string][2]string{
		"a reason that names no condition": {block + "\t// ReasonA is bad.\n\tReasonA ConditionReason = \"A\"\n)", "ReasonA"},
		"reasons of nobody":                {"const (\n\t// ReasonA (Ready true): good.\n\tReasonA ConditionReason = \"A\"\n)", "ReasonA"},
		"a condition of nobody":            {"// ConditionA is true.\nconst ConditionA ConditionType = \"A\"", "ConditionA"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "a.go"), []byte("package a\n\n"+test[0]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			constants, err := readConstants(folder)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := conditions("RegoPolicy", constants); err == nil || !strings.Contains(err.Error(), test[1]) {
				t.Errorf("got %v\n%s", err, text)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	one, two, none := int64(1), int64(2), int64(0)
	text := apiextensionsv1.JSONSchemaProps{MaxLength: &two, Pattern: "a|b"}
	for want, schema := range map[string]apiextensionsv1.JSONSchemaProps{
		"at most 2 characters; matches `a\\|b`":               text,
		"1 entry; each at most 2 characters; matches `a\\|b`": {MinItems: &one, MaxItems: &one, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}},
		"0 to 2 entries":      {MinProperties: &none, MaxProperties: &two},
		"at least 1 entry":    {MinItems: &one},
		"at most 1 character": {MaxLength: &one},
	} {
		if got := strings.Join(describe.Limits(&schema), "; "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
