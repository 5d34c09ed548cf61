package catalog

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/webhooks/engine"
)

// The types of Sallyport's kinds are those of their definitions.
func TestTypesOfOurKindsAreThoseOfTheirDefinitions(t *testing.T) {
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			of := typeOf(crd.Spec.Group+"/"+version.Name, crd.Spec.Names.Kind)
			for name, field := range version.Schema.OpenAPIV3Schema.Properties {
				if name != "metadata" { // its definition is that of the API server
					compareTypes(t, crd.Spec.Names.Kind+"."+name, of.Fields[name], field)
				}
			}
		}
	}
}

func compareTypes(t *testing.T, path string, got *engine.Type, want apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if got == nil {
		t.Errorf("%s has no type", path)
		return
	}
	kind := map[string]engine.TypeKind{
		"object": engine.ObjectType, "array": engine.ListType, "string": engine.StringType, "integer": engine.IntegerType,
		"number": engine.NumberType, "boolean": engine.BooleanType,
	}[want.Type]
	if want.XIntOrString {
		kind = engine.StringOrNumber
	}
	if want.XPreserveUnknownFields != nil { // it may be anything
		kind = engine.AnyType
	}
	if got.Kind != kind || got.Nullable != want.Nullable && kind != engine.AnyType && want.Format != "date-time" {
		t.Errorf("%s is %q, nullable %v; want %q, %v", path, got.Kind, got.Nullable, kind, want.Nullable)
	}
	if kind == engine.AnyType {
		return
	}
	for name, field := range want.Properties {
		compareTypes(t, path+"."+name, got.Fields[name], field)
	}
	if want.Items != nil {
		compareTypes(t, path+"[]", got.Each, *want.Items.Schema)
	}
	if want.AdditionalProperties != nil {
		compareTypes(t, path+"[]", got.Each, *want.AdditionalProperties.Schema)
	}
}

// What is known of other kinds is their metadata, which is the same for all.
func TestTypesOfOtherKinds(t *testing.T) {
	for _, tc := range []struct {
		apiVersion, kind string
		path             []string
		want             engine.TypeKind
	}{
		{"v1", "Pod", []string{"spec", "nodeName"}, engine.StringType},
		{"v1", "Pod", []string{"spec", "containers"}, engine.ListType},
		{"v1", "Node", []string{"status", "capacity"}, engine.ObjectType},
		{"apps/v1", "Deployment", []string{"spec", "replicas"}, engine.IntegerType},
		{"coordination.k8s.io/v1", "Lease", []string{"spec", "renewTime"}, engine.StringType},
		{"apiextensions.k8s.io/v1", "CustomResourceDefinition", []string{"spec", "group"}, engine.StringType},
		{"example.com/v1", "Unknown", []string{"metadata", "ownerReferences"}, engine.ListType},
		{"sallyport.dev/v1alpha1", "VirtualMachine", []string{"metadata", "labels"}, engine.ObjectType},
	} {
		of := typeOf(tc.apiVersion, tc.kind)
		for _, name := range tc.path {
			if of = of.Fields[name]; of == nil {
				break
			}
		}
		if of == nil || of.Kind != tc.want {
			t.Errorf("%s %s %v is %+v, want %q", tc.apiVersion, tc.kind, tc.path, of, tc.want)
		}
	}
	if of := typeOf("example.com/v1", "Unknown").Fields["spec"]; of != nil {
		t.Errorf("spec of an unknown kind is %+v", of)
	}
}
