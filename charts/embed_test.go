package charts_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestCRDs(t *testing.T) {
	crds := definitions(t)
	var names []string
	for _, crd := range crds {
		names = append(names, crd.Name)
	}
	if !slices.IsSorted(names) {
		t.Errorf("not in the order of their names: %v", names)
	}
	if got, want := kinds(crds), registeredKinds(t); !slices.Equal(got, want) {
		t.Errorf("the chart has the kinds %v, the API package registers %v", got, want)
	}
	for _, crd := range crds {
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			t.Run("is accepted by the API server", func(t *testing.T) { checkAccepted(t, crd) })
			t.Run("keeps to the conventions", func(t *testing.T) { checkConventions(t, crd) })
			t.Run("has a schema that explains and bounds itself", func(t *testing.T) {
				for _, version := range crd.Spec.Versions {
					checkSchema(t, "", *version.Schema.OpenAPIV3Schema)
				}
			})
		})
	}
}

func kinds(crds []*apiextensionsv1.CustomResourceDefinition) []string {
	var kinds []string
	for _, crd := range crds {
		kinds = append(kinds, crd.Spec.Names.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

// registeredKinds are the kinds of the API package that have a list kind, which
// leaves out the helper kinds that every group has.
func registeredKinds(t *testing.T) []string {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	known := scheme.KnownTypes(v1alpha1.GroupVersion)
	var kinds []string
	for kind := range known {
		if _, listed := known[kind+"List"]; listed {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// checkAccepted runs the validation that the API server runs at the creation of
// a definition: it demands a structural schema, compiles every CEL rule and
// holds its cost against the budget.
func checkAccepted(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if errs := validation.ValidateCustomResourceDefinition(context.Background(), internal(t, crd)); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

func internal(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	crd = crd.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

func checkConventions(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if !slices.Contains(crd.Spec.Names.Categories, "sallyport") {
		t.Error("not in the category sallyport")
	}
	if len(crd.Spec.Names.ShortNames) == 0 {
		t.Error("no short name")
	}
	for _, version := range crd.Spec.Versions {
		if version.Subresources == nil || version.Subresources.Status == nil {
			t.Errorf("%s has no status subresource", version.Name)
		}
		if len(version.SelectableFields) == 0 {
			t.Errorf("%s has no selectable fields", version.Name)
		}
		columns := version.AdditionalPrinterColumns
		if len(columns) == 0 || columns[len(columns)-1].Name != "Age" {
			t.Errorf("%s does not end its printer columns with Age", version.Name)
		}
		for _, column := range columns {
			if column.Description == "" {
				t.Errorf("printer column %s of %s has no description", column.Name, version.Name)
			}
		}
		status := version.Schema.OpenAPIV3Schema.Properties["status"]
		if _, ok := status.Properties["observedGeneration"]; !ok {
			t.Errorf("%s has no status.observedGeneration", version.Name)
		}
		conditions := status.Properties["conditions"]
		if conditions.XListType == nil || *conditions.XListType != "map" || !slices.Equal(conditions.XListMapKeys, []string{"type"}) {
			t.Errorf("status.conditions of %s is no list-map by type", version.Name)
		}
	}
}

// checkSchema reports every field without a description, every CEL rule without
// a message, and every list, map and string that may grow without bound.
func checkSchema(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	for _, rule := range schema.XValidations {
		if rule.Message == "" && rule.MessageExpression == "" {
			t.Errorf("%s: the rule %q has no message", path, rule.Rule)
		}
	}
	if problem := unbounded(schema); problem != "" && strings.Contains(path, ".") {
		t.Errorf("%s: %s", path, problem)
	}
	if schema.Items != nil && schema.Items.Schema != nil && !foreign(path) {
		checkSchema(t, path+"[]", *schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil && !foreign(path) {
		checkSchema(t, path+"{}", *schema.AdditionalProperties.Schema)
	}
	for name, property := range schema.Properties {
		child := strings.TrimPrefix(fmt.Sprintf("%s.%s", path, name), ".")
		if child == "metadata" || foreign(path) {
			continue
		}
		if property.Description == "" {
			t.Errorf("%s: no description", child)
		}
		checkSchema(t, child, property)
	}
}

// foreign reports whether the type at a path is Kubernetes' own, whose inside is
// not ours to describe and to bound.
func foreign(path string) bool {
	return path == "status.conditions" || strings.HasSuffix(path, ".selector") ||
		strings.HasSuffix(path, "Selector") && !strings.HasSuffix(path, "nodeSelector")
}

func unbounded(schema apiextensionsv1.JSONSchemaProps) string {
	switch {
	case schema.Type == "array" && schema.MaxItems == nil:
		return "a list without maxItems"
	case schema.Type == "string" && schema.MaxLength == nil && len(schema.Enum) == 0 && schema.Format != "date-time":
		return "a string without maxLength or enum"
	case schema.AdditionalProperties != nil && schema.MaxProperties == nil:
		return "a map without maxProperties"
	case schema.Type == "integer" && schema.Format == "int32" && schema.Minimum == nil:
		return "a small integer without minimum"
	}
	return ""
}
