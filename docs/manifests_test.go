package docs_test

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/pages"
)

// A manifest that somebody copies is one that the API server takes.
func TestManifests(t *testing.T) {
	schemas := map[any]*apiextensions.JSONSchemaProps{}
	for _, crd := range definitions(t) {
		schemas[crd.Spec.Names.Kind] = schemaOf(t, crd)
	}
	checked := 0
	for _, p := range pages.All(t, root) {
		for _, b := range p.Blocks {
			if b.Language != "yaml" {
				continue
			}
			for document := range strings.SplitSeq(b.Text, "\n---\n") {
				object := map[string]any{}
				if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
					t.Errorf("%s: %v", b.Where, err)
					continue
				}
				if object["apiVersion"] != v1alpha1.GroupVersion.String() {
					continue
				}
				checked++
				schema, known := schemas[object["kind"]]
				if !known {
					t.Errorf("%s: there is no kind %v", b.Where, object["kind"])
					continue
				}
				for _, problem := range problems(t, schema, object) {
					t.Errorf("%s: %v: %s", b.Where, object["kind"], problem)
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no page shows a manifest")
	}
}

func schemaOf(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *apiextensions.JSONSchemaProps {
	t.Helper()
	schema := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, schema, nil)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// problems are what the API server would say to a new object, unknown fields included.
func problems(t *testing.T, schema *apiextensions.JSONSchemaProps, object map[string]any) (found []string) {
	t.Helper()
	structural, err := structuralschema.NewStructural(schema)
	if err != nil {
		t.Fatal(err)
	}
	openAPI, _, err := validation.NewSchemaValidator(schema)
	if err != nil {
		t.Fatal(err)
	}
	unknown := pruning.PruneWithOptions(object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, name := range unknown {
		found = append(found, fmt.Sprintf("unknown field %q", name))
	}
	defaulting.Default(object, structural)
	errs := validation.ValidateCustomResource(nil, object, openAPI)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
	if len(errs) == 0 { // rules are for what has the right types
		var broken field.ErrorList
		broken, _ = cel.NewValidator(structural, true, celconfig.PerCallLimit).Validate(t.Context(), nil, structural, object, nil, math.MaxInt64)
		errs = append(errs, broken...)
	}
	for _, err := range errs {
		found = append(found, err.Error())
	}
	return found
}

// foreign are paths of kinds that are not ours.
var foreign = map[string]bool{"status.allowed": true}

// Fields that sentences name by their paths exist.
func TestFieldPaths(t *testing.T) {
	path := regexp.MustCompile(`^(spec|status)(\.[a-zA-Z]+(\[[^\]]*\]|\{\})?)+(: .*)?$`)
	var kinds []apiextensionsv1.JSONSchemaProps
	for _, crd := range definitions(t) {
		kinds = append(kinds, *crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
	for _, p := range pages.All(t, root) {
		for _, s := range p.Spans {
			name, _, _ := strings.Cut(s.Text, ": ")
			if !path.MatchString(s.Text) || foreign[name] {
				continue
			}
			elements := strings.Split(regexp.MustCompile(`\[[^\]]*\]|\{\}`).ReplaceAllString(name, ""), ".")
			known := false
			for _, kind := range kinds {
				known = known || has(kind, elements)
			}
			if !known {
				t.Errorf("%s: no kind has the field %s", s.Where, name)
			}
		}
	}
}

// has tells whether a path leads somewhere.
func has(schema apiextensionsv1.JSONSchemaProps, path []string) bool {
	if len(path) == 0 || schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields {
		return true
	}
	if schema.Items != nil {
		return has(*schema.Items.Schema, path)
	}
	if schema.AdditionalProperties != nil {
		return has(*schema.AdditionalProperties.Schema, path)
	}
	below, there := schema.Properties[path[0]]
	return there && has(below, path[1:])
}
