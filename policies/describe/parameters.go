package describe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// parameters writes the parameters of a policy from its schema, and their values. A schema or parameters that cannot be parsed are
// omitted, because such a policy does not compile.
func parameters(spec *v1alpha1.RegoPolicySpec) string {
	text := ""
	if spec.ParametersSchema != nil {
		var schema apiextensionsv1.JSONSchemaProps
		if json.Unmarshal(spec.ParametersSchema.Raw, &schema) == nil {
			text += Table([]string{"parameter", "type", "description"}, fieldsBelow("", &schema))
			if rules := Rules(&schema); len(rules) > 0 {
				text += "Rules for all parameters: " + strings.Join(rules, "; ") + "\n\n"
			}
		}
	}
	if spec.Parameters != nil {
		var given map[string]any
		if json.Unmarshal(spec.Parameters.Raw, &given) == nil {
			text += Table([]string{"parameter", "value"}, valuesBelow("", given))
		}
	}
	return text
}

// fieldsBelow returns rows for the fields of a schema. In paths, [] stands for each entry of a list and {} for each value of a map.
func fieldsBelow(path string, schema *apiextensionsv1.JSONSchemaProps) (rows [][]string) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		below := strings.TrimPrefix(path+"."+name, ".")
		rows = append(rows, append([]string{Code(below)}, field(&property, slices.Contains(schema.Required, name))...))
		rows = append(rows, inside(below, &property)...)
	}
	return rows
}

// inside returns rows for the nested fields of a field.
func inside(path string, schema *apiextensionsv1.JSONSchemaProps) [][]string {
	switch {
	case schema.Items != nil && schema.Items.Schema != nil:
		return inside(path+"[]", schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return inside(path+"{}", schema.AdditionalProperties.Schema)
	}
	return fieldsBelow(path, schema)
}

func field(schema *apiextensionsv1.JSONSchemaProps, required bool) []string {
	kind := typeOf(schema)
	if required {
		kind += ", required"
	}
	return []string{kind, Meaning(schema)}
}

// Meaning returns the description of a field and its restrictions.
func Meaning(schema *apiextensionsv1.JSONSchemaProps) string {
	meaning := Cell(schema.Description)
	if limits := Limits(schema); len(limits) > 0 {
		meaning = strings.TrimPrefix(meaning+"<br>*Valid:* "+strings.Join(limits, "; "), "<br>")
	}
	return meaning
}

func typeOf(schema *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case len(schema.Enum) > 0:
		return "one of " + Codes(Words(schema))
	case schema.Items != nil && schema.Items.Schema != nil:
		return "list: each " + typeOf(schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return "map: each value " + typeOf(schema.AdditionalProperties.Schema)
	case schema.XIntOrString:
		return "integer or string"
	case schema.Type == "":
		return "anything"
	}
	return schema.Type
}

// valuesBelow returns rows for the values of parameters. Nested objects are flattened; lists are not.
func valuesBelow(path string, given map[string]any) (rows [][]string) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		below := strings.TrimPrefix(path+"."+name, ".")
		if object, ok := given[name].(map[string]any); ok && len(object) > 0 {
			rows = append(rows, valuesBelow(below, object)...)
			continue
		}
		rows = append(rows, []string{Code(below), valueOf(given[name])})
	}
	return rows
}

func valueOf(given any) string {
	list, ok := given.([]any)
	if !ok {
		return Code(plain(given))
	}
	if len(list) == 0 {
		return "none"
	}
	entries := make([]string, len(list))
	for i, entry := range list {
		entries[i] = plain(entry)
	}
	return Codes(entries)
}

// plain returns a string unchanged, and any other value as JSON.
func plain(given any) string {
	if text, ok := given.(string); ok && text != "" {
		return text
	}
	text, err := json.Marshal(given)
	if err != nil {
		return fmt.Sprint(given)
	}
	return string(text)
}
