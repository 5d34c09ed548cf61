package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies/describe"
)

const preface = `<!-- Written by docs/generate, from the comments in api/v1alpha1: edit these, then run "make generate". -->

# API reference: sallyport.dev/v1alpha1

This page lists every kind with its fields, the values that the API server accepts, and the types and reasons of its conditions. In a cluster,
` +
	"`kubectl explain`" + ` shows the same. In paths, ` + "`[]`" + ` stands for each entry of a list and ` + "`{}`" + ` for each value of a map. Text in quotation
marks is the error message of a rule.

`

func reference(crds []*apiextensionsv1.CustomResourceDefinition, constants []constant) (string, error) {
	slices.SortStableFunc(crds, func(a, b *apiextensionsv1.CustomResourceDefinition) int {
		return place(a.Spec.Names.Kind) - place(b.Spec.Names.Kind)
	})
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return "", err
	}
	var index, body strings.Builder
	var enums []string
	for _, crd := range crds {
		kind := crd.Spec.Names.Kind
		object, err := scheme.New(v1alpha1.GroupVersion.WithKind(kind))
		if err != nil {
			return "", err
		}
		fields := &fieldTable{kind: kind, constants: constants, enums: enums}
		text, err := section(crd, reflect.TypeOf(object).Elem(), fields)
		if err != nil {
			return "", err
		}
		enums = fields.enums
		fmt.Fprintf(&index, "- [%s](#%s): [spec](#spec-of-a-%[2]s), [status](#status-of-a-%[2]s), [conditions](#conditions-of-a-%[2]s)\n",
			kind, strings.ToLower(kind))
		body.WriteString(text)
	}
	index.WriteString("- [Values](#values) of fields that hold one of some words\n")
	index.WriteString("- [Conditions](#conditions) in general\n\n")
	return preface + index.String() + body.String() + values(enums, constants) + "## Conditions\n\n" + conditionText(), nil
}

// place is where a kind is in the order in which a reader meets them.
func place(kind string) int {
	return slices.IndexFunc(v1alpha1.Kinds, func(k v1alpha1.Kind) bool { return k.Name == kind })
}

// section is everything about one kind.
func section(crd *apiextensionsv1.CustomResourceDefinition, goType reflect.Type, fields *fieldTable) (string, error) {
	if len(crd.Spec.Versions) != 1 {
		return "", fmt.Errorf("%s has %d versions; the reference is made for one", fields.kind, len(crd.Spec.Versions))
	}
	version := &crd.Spec.Versions[0]
	schema := version.Schema.OpenAPIV3Schema
	var text strings.Builder
	fmt.Fprintf(&text, "## %s\n\n%s\n\n", fields.kind, schema.Description)
	text.WriteString(facts(crd, version))
	for _, name := range []string{"Spec", "Status"} {
		path := strings.ToLower(name)
		field, there := goType.FieldByName(name)
		property, inSchema := schema.Properties[path]
		if !there || !inSchema {
			return "", fmt.Errorf("%s has no %s", fields.kind, path)
		}
		fields.text.Reset()
		if err := fields.add(path, field.Type, &property, slices.Contains(schema.Required, path)); err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "### %s of a %s\n\n| field | type | default | meaning |\n| --- | --- | --- | --- |\n%s\n",
			name, fields.kind, fields.text.String())
	}
	conditions, err := conditions(fields.kind, fields.constants)
	if err != nil {
		return "", err
	}
	return text.String() + conditions + "\n", nil
}

// facts are what is to be known of a kind but for its fields.
func facts(crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) string {
	names := crd.Spec.Names
	scope := "cluster"
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		scope = "namespace"
	}
	rows := [][2]string{
		{"names", describe.Codes([]string{names.Plural, names.Singular})},
		{"short name", describe.Codes(names.ShortNames)},
		{"category", describe.Codes(names.Categories)},
		{"scope", scope},
		{"subresource", describe.Code("status")},
	}
	var selectable, columns, wide []string
	for _, field := range version.SelectableFields {
		selectable = append(selectable, strings.TrimPrefix(field.JSONPath, "."))
	}
	for _, column := range version.AdditionalPrinterColumns {
		shown := fmt.Sprintf("%s (%s)", describe.Code(strings.ToUpper(column.Name)), describe.Cell(strings.TrimSuffix(column.Description, ".")))
		if column.Priority > 0 {
			wide = append(wide, shown)
		} else {
			columns = append(columns, shown)
		}
	}
	rows = append(rows, [2]string{"columns", strings.Join(columns, ", ")})
	if len(wide) > 0 {
		rows = append(rows, [2]string{"with " + describe.Code("-o wide"), strings.Join(wide, ", ")})
	}
	rows = append(rows, [2]string{describe.Code("--field-selector"), describe.Codes(selectable)})
	if rules := describe.Rules(version.Schema.OpenAPIV3Schema); len(rules) > 0 {
		rows = append(rows, [2]string{"valid", strings.Join(rules, "; ")})
	}
	text := "| | |\n| --- | --- |\n"
	for _, row := range rows {
		text += fmt.Sprintf("| %s | %s |\n", row[0], row[1])
	}
	return text + "\n"
}

// values tells what the words mean that fields may hold.
func values(types []string, constants []constant) string {
	var text strings.Builder
	text.WriteString("## Values\n\n")
	for _, name := range slices.Sorted(slices.Values(types)) {
		fmt.Fprintf(&text, "### %s\n\n| value | meaning |\n| --- | --- |\n", name)
		for _, c := range ofType(constants, name) {
			fmt.Fprintf(&text, "| %s | %s |\n", describe.Code(c.value), describe.Cell(c.meaning()))
		}
		text.WriteString("\n")
	}
	return text.String()
}
