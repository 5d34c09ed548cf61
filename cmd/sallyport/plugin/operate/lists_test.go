package operate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/reconcilers/claim"
)

// enumOf gives the values of a field in the schema of a kind, sorted.
func enumOf(t *testing.T, kind, path string) (values []string) {
	t.Helper()
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(crds, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Spec.Names.Kind == kind })
	schema := *crds[i].Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, name := range strings.Split(path, ".") {
		if name == "[]" {
			schema = *schema.Items.Schema
			continue
		}
		schema = schema.Properties[name]
	}
	for _, value := range schema.Enum {
		var text string
		if err := json.Unmarshal(value.Raw, &text); err != nil {
			t.Fatal(err)
		}
		values = append(values, text)
	}
	slices.Sort(values)
	return values
}

// A type of operation is in several lists, which no compiler compares.
func TestOperationTypesAreInEveryList(t *testing.T) {
	operations := enumOf(t, "VirtualMachineOperation", "spec.type")
	claims := append(slices.Clone(operations), string(v1alpha1.OperationDelete))
	slices.Sort(claims)
	var forms, commands []string
	for _, form := range v1alpha1.OperationForms() {
		forms = append(forms, string(form.Type))
	}
	for _, v := range verbs {
		commands = append(commands, string(v.kind))
	}
	slices.Sort(forms)
	slices.Sort(commands)
	for list, is := range map[string][2][]string{
		"v1alpha1.OperationForms":                           {operations, slices.Compact(forms)},
		"the commands of kubectl sallyport":                 {operations, commands},
		"status.activeOperation.type of the VirtualMachine": {claims, enumOf(t, "VirtualMachine", "status.activeOperation.type")},
		"status.undoing.[].type of the VirtualMachine":      {claims, enumOf(t, "VirtualMachine", "status.undoing.[].type")},
	} {
		if diff := cmp.Diff(is[0], is[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", list, diff)
		}
	}
	intents := enumOf(t, "VirtualMachine", "status.powerIntent.state")
	for _, name := range claims {
		kind := v1alpha1.OperationType(name)
		if len(claim.Steps(kind)) == 0 {
			t.Errorf("%s has no steps in reconcilers/claim", name)
		}
		if leaves := string(claim.Leaves(kind)); leaves != "" && !slices.Contains(intents, leaves) {
			t.Errorf("%s leaves a machine %s, which status.powerIntent.state cannot be", name, leaves)
		}
	}
}
