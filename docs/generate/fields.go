package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies/describe"
)

// ours is the package of the API's Go types.
var ours = reflect.TypeFor[v1alpha1.VirtualMachine]().PkgPath()

// fieldTable lists the fields of a kind: those at a path and all below, in the order of the Go type.
type fieldTable struct {
	kind      string
	constants []constant
	text      strings.Builder
	// enums are the Go types of fields that hold one of some words, in the order in which they are met.
	enums []string
}

// add adds a row for a field and rows for what is below it.
func (t *fieldTable) add(path string, goType reflect.Type, schema *apiextensionsv1.JSONSchemaProps, required bool) error {
	kind, err := t.typeOf(goType, schema)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", path, t.kind, err)
	}
	if required {
		kind += ", required"
	}
	preset := ""
	if schema.Default != nil {
		preset = describe.Code(strings.Trim(string(schema.Default.Raw), `"`))
	}
	goType = pointee(goType)
	fmt.Fprintf(&t.text, "| %s | %s | %s | %s |\n", describe.Code(path), kind, preset, describe.Meaning(readable(goType, schema)))

	switch {
	case schema.Items != nil && goType.Kind() == reflect.Slice:
		return t.addBelow(path+"[]", pointee(goType.Elem()), schema.Items.Schema)
	case schema.AdditionalProperties != nil && goType.Kind() == reflect.Map:
		return t.addBelow(path+"{}", pointee(goType.Elem()), schema.AdditionalProperties.Schema)
	}
	return t.addBelow(path, goType, schema)
}

// readable leaves out the bounds that every field of a type of Kubernetes has, which say less than the name of the type.
func readable(goType reflect.Type, schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if goType.Kind() != reflect.Struct || goType.PkgPath() == ours {
		return schema
	}
	s := *schema
	s.Pattern, s.MaxLength, s.Minimum, s.Maximum, s.MinItems, s.MaxItems = "", nil, nil, nil, nil, nil
	return &s
}

// addBelow adds rows for the fields of an object, if it is one of ours.
func (t *fieldTable) addBelow(path string, goType reflect.Type, schema *apiextensionsv1.JSONSchemaProps) error {
	if goType.Kind() != reflect.Struct || goType.PkgPath() != ours {
		return nil
	}
	for field := range goType.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		property, there := schema.Properties[name]
		if !there {
			return fmt.Errorf("%s of %s is not in its definition", path+"."+name, t.kind)
		}
		if err := t.add(path+"."+name, field.Type, &property, slices.Contains(schema.Required, name)); err != nil {
			return err
		}
	}
	return nil
}

// typeOf names the type of a field, with links to what is told about it elsewhere.
func (t *fieldTable) typeOf(goType reflect.Type, schema *apiextensionsv1.JSONSchemaProps) (string, error) {
	goType = pointee(goType)
	switch {
	case goType == reflect.TypeFor[metav1.LabelSelector]():
		return "[label selector](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/)", nil
	case goType == reflect.TypeFor[[]metav1.Condition]():
		return fmt.Sprintf("[conditions](#conditions-of-a-%s)", strings.ToLower(t.kind)), nil
	case goType == reflect.TypeFor[resource.Quantity]():
		return "[quantity](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/) of at most 18 digits", nil
	case schema.Type == "array":
		of, err := t.typeOf(goType.Elem(), schema.Items.Schema)
		return "list of " + plural(of), err
	case schema.AdditionalProperties != nil:
		of, err := t.typeOf(goType.Elem(), schema.AdditionalProperties.Schema)
		return "map of strings to " + plural(of), err
	case schema.XPreserveUnknownFields != nil:
		return "any object", nil
	case schema.Format == "date-time":
		return "time", nil
	case len(schema.Enum) > 0:
		return t.enum(goType.Name(), describe.Words(schema))
	case schema.XIntOrString:
		return "integer or string", nil
	case schema.Type == "":
		return "", fmt.Errorf("its definition says no type")
	}
	return schema.Type, nil
}

// enum links to the values of a Go type, and lists them if it is not all that the field may hold.
func (t *fieldTable) enum(name string, words []string) (string, error) {
	known := ofType(t.constants, name)
	for _, word := range words {
		if !slices.ContainsFunc(known, func(c constant) bool { return c.value == word }) {
			return "", fmt.Errorf("no constant of the type %s says what %s means", name, word)
		}
	}
	if !slices.Contains(t.enums, name) {
		t.enums = append(t.enums, name)
	}
	link := fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	if len(words) < len(known) {
		link += " (" + describe.Codes(words) + ")"
	}
	return link, nil
}

func plural(of string) string {
	if slices.Contains([]string{"object", "string", "integer"}, of) {
		return of + "s"
	}
	return of
}

func pointee(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
