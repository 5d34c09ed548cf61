package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"sallyport.dev/sallyport/webhooks/engine"
)

// conforms validates spec.parameters by spec.parametersSchema, as the API server validates a custom resource by the schema in its
// CustomResourceDefinition. The error is [engine.CompileErrors], which name fields. Unlike the API server, which drops unknown fields, it
// rejects them, so that users notice misspelt names.
func (s *Source) conforms() error {
	if len(s.ParametersSchema) == 0 {
		return nil
	}
	schema, err := parametersSchema(s.ParametersSchema)
	if err != nil {
		return s.wrong("spec.parametersSchema is not a schema: " + err.Error())
	}
	parameters := map[string]any{}
	if len(s.Parameters) > 0 {
		if err := utiljson.Unmarshal(s.Parameters, &parameters); err != nil {
			return s.wrong("spec.parameters: " + err.Error())
		}
	}
	return s.wrong(schema.problems(parameters)...)
}

// wrong is nil without problems.
func (s *Source) wrong(problems ...string) error {
	if len(problems) == 0 {
		return nil
	}
	errs := make(engine.CompileErrors, len(problems))
	for i, p := range problems {
		errs[i] = engine.CompileError{File: s.Name, Message: p, Parameters: true}
	}
	return errs
}

// Schema is a JSON schema in the form that definitions of custom resources have.
type Schema struct {
	Structural *structuralschema.Structural
	Values     validation.SchemaValidator
	Rules      *cel.Validator // nil without any
}

// NewSchema compiles a schema as the API server does. A nil path means that it is the schema of a kind, otherwise it is that of the field at
// the path. Unknown fields of defaults are removed.
func NewSchema(external *apiextensionsv1.JSONSchemaProps, at *field.Path) (*Schema, error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(external.DeepCopy(), &internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, err
	}
	if errs := structuralschema.ValidateStructural(at, structural); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	structural = structural.DeepCopy()
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, err
	}
	values, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		return nil, err
	}
	return &Schema{structural, values, cel.NewValidator(structural, at == nil, celconfig.PerCallLimit)}, nil
}

// weakens is a word of ours in a schema: an entry that is Added to the parameter, or Removed from it, weakens the policy. Policy
// policies-self goes by it.
const weakens = "x-sallyport-weakens"

// withoutOurs takes the words out of a schema that the API server does not know.
func withoutOurs(value any, path []string) error {
	of, is := value.(map[string]any)
	if !is {
		return nil
	}
	if word, has := of[weakens]; has {
		if word != "Added" && word != "Removed" {
			return fmt.Errorf("%s is %v, but must be Added or Removed", weakens, word)
		}
		for i, key := range path {
			if i%2 == 0 && key != "properties" {
				return fmt.Errorf("%s is below %s, but must belong to a named parameter", weakens, key)
			}
		}
		delete(of, weakens)
	}
	for key, below := range of {
		if err := withoutOurs(below, append(path[:len(path):len(path)], key)); err != nil {
			return err
		}
	}
	return nil
}

// parametersSchema compiles spec.parametersSchema.
func parametersSchema(text []byte) (*Schema, error) {
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	if err := withoutOurs(whole, nil); err != nil {
		return nil, err
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	var external apiextensionsv1.JSONSchemaProps
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&external); err != nil {
		return nil, err
	}
	compiled, err := NewSchema(&external, field.NewPath("spec", "parametersSchema"))
	if err != nil {
		return nil, err
	}
	if compiled.Structural.Type != "object" {
		return nil, fmt.Errorf("its type is %q, but must be object", compiled.Structural.Type)
	}
	if defaults(compiled.Structural) {
		return nil, fmt.Errorf("it has a default, but parameters come only from spec.parameters")
	}
	return compiled, nil
}

// defaults reports whether a schema has a default at any depth.
func defaults(s *structuralschema.Structural) (found bool) {
	v := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		found = found || s.Default.Object != nil
		return false
	}}
	v.Visit(s)
	return found
}

// problems are what is wrong with parameters, with the path of the field, in the order of the paths.
func (s *Schema) problems(parameters map[string]any) []string {
	root := field.NewPath("spec", "parameters")
	errs := validation.ValidateCustomResource(root, parameters, s.Values)
	errs = append(errs, listtype.ValidateListSetsAndMaps(root, s.Structural, parameters)...)
	if len(errs) == 0 && s.Rules != nil {
		broken, _ := s.Rules.Validate(context.Background(), root, s.Structural, parameters, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
	}
	var all []string
	for _, e := range errs {
		all = append(all, strings.Join(strings.Fields(e.Error()), " ")) // those of CEL draw where they are
	}
	for _, path := range s.unknown(parameters) {
		all = append(all, fmt.Sprintf("%s.%s: unknown field", root, path))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// unknown returns the paths of the fields that the schema lacks.
func (s *Schema) unknown(parameters map[string]any) []string {
	named := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	return pruning.PruneWithOptions(runtime.DeepCopyJSON(parameters), s.Structural, false, named)
}
