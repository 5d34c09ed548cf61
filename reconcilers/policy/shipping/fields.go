package shipping

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/schemaconv"
	openapi "k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
)

// policyType is the API server's structure of a RegoPolicy for merging, according to its definition. Below parameters and
// parametersSchema, which have no schema, maps are merged by key and lists are atomic; so are fields of a newer definition.
var policyType = sync.OnceValues(func() (typed.ParseableType, error) {
	crds, err := charts.CRDs()
	if err != nil {
		return typed.ParseableType{}, err
	}
	i := slices.IndexFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == kind })
	text, err := json.Marshal(crds[i].Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		return typed.ParseableType{}, err
	}
	definition := &openapi.Schema{}
	if err := json.Unmarshal(text, definition); err != nil {
		return typed.ParseableType{}, err
	}
	texts := *openapi.MapProperty(openapi.StringProperty()) // as in ObjectMeta, whose fields the definition does not have
	definition.Properties["metadata"] = *new(openapi.Schema).Typed("object", "").SetProperty("labels", texts).SetProperty("annotations", texts)
	structure, err := schemaconv.ToSchemaFromOpenAPI(map[string]*openapi.Schema{kind: definition}, true)
	return typed.ParseableType{Schema: structure, TypeRef: schema.TypeRef{NamedType: ptr.To(kind)}}, err
})

// fields is the part of a policy that can be shipped: labels, annotations and spec.
type fields struct {
	content map[string]any
	// set contains every field with a value of its own, and every entry of a map or keyed list.
	set *fieldpath.Set
}

func fieldsOf(object map[string]any) (*fields, error) {
	f := &fields{content: map[string]any{}}
	if spec, ok := object["spec"].(map[string]any); ok {
		f.content["spec"] = spec
	}
	meta, _ := object["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, key := range []string{"labels", "annotations"} {
		if m, ok := meta[key].(map[string]any); ok && len(m) > 0 {
			kept[key] = m
		}
	}
	if len(kept) > 0 {
		f.content["metadata"] = kept
	}
	of, err := policyType()
	if err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", kind, err)
	}
	typed, err := of.FromUnstructured(f.content)
	if err != nil {
		return nil, err
	}
	f.set, err = typed.ToFieldSet()
	return f, err
}

// fieldsOfPolicy returns the fields of a policy, with defaults filled in where a default can be distinguished from an
// empty field.
func fieldsOfPolicy(policy *v1alpha1.RegoPolicy) (*fields, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
	if err != nil {
		return nil, err
	}
	if spec, ok := object["spec"].(map[string]any); ok {
		spec["library"] = policy.Spec.Library
	}
	return fieldsOf(object)
}

// extract returns the part of the content that is in a set.
func (f *fields) extract(set *fieldpath.Set) map[string]any {
	part, _ := extract(f.content, f.set, set).(map[string]any)
	return part
}

// extract returns the part of a value that is in a set; all is the set of all its fields. (The function of package
// typed loses the content of maps without a schema.)
func extract(in any, all, set *fieldpath.Set) any {
	if all.Empty() {
		return in // a leaf
	}
	switch in := in.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, v := range in {
			element := fieldpath.PathElement{FieldName: &name}
			if part := set.WithPrefix(element); set.Members.Has(element) || !part.Empty() {
				out[name] = extract(v, all.WithPrefix(element), part)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, v := range in {
			for path := range all.All() {
				if len(path) != 1 {
					continue
				}
				if _, is := find([]any{v}, path); is && set.Has(path) {
					out = append(out, extract(v, all.WithPrefix(path[0]), set.WithPrefix(path[0])))
				}
			}
		}
		return out
	}
	return in
}

// below returns the fields of a set at and below a path.
func below(set *fieldpath.Set, path fieldpath.Path) (at bool, deeper *fieldpath.Set) {
	at = set.Has(path)
	for _, element := range path {
		set = set.WithPrefix(element)
	}
	return at, set
}

func find(in any, path fieldpath.Path) (any, bool) {
	for _, element := range path {
		var ok bool
		switch {
		case element.FieldName != nil:
			var m map[string]any
			if m, ok = in.(map[string]any); ok {
				in, ok = m[*element.FieldName]
			}
		case element.Key != nil:
			in, ok = entry(in, func(e any) bool { return hasKey(e, *element.Key) })
		case element.Value != nil:
			in, ok = entry(in, func(e any) bool { return value.Equals(value.NewValueInterface(e), *element.Value) })
		}
		if !ok {
			return nil, false
		}
	}
	return in, true
}

func entry(list any, is func(any) bool) (any, bool) {
	entries, _ := list.([]any)
	for _, e := range entries {
		if is(e) {
			return e, true
		}
	}
	return nil, false
}

func hasKey(in any, key value.FieldList) bool {
	m, _ := in.(map[string]any)
	for _, field := range key {
		if v, ok := m[field.Name]; !ok || !value.Equals(value.NewValueInterface(v), field.Value) {
			return false
		}
	}
	return m != nil
}

func same(a, b any) bool { return value.Equals(value.NewValueInterface(a), value.NewValueInterface(b)) }

// owners are the fields that we applied, and those of all other managers.
type owners struct{ ours, others *fieldpath.Set }

func ownersOf(entries []metav1.ManagedFieldsEntry) (owners, error) {
	o := owners{fieldpath.NewSet(), fieldpath.NewSet()}
	for i := range entries {
		set, err := decode(&entries[i])
		switch {
		case err != nil:
			return o, fmt.Errorf("metadata.managedFields[%d] of %s: %w", i, entries[i].Manager, err)
		case ours(&entries[i]):
			o.ours = o.ours.Union(set)
		default:
			o.others = o.others.Union(set)
		}
	}
	return o, nil
}

// ours reports whether fields were applied by us.
func ours(e *metav1.ManagedFieldsEntry) bool {
	return e.Manager == FieldOwner && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

func decode(e *metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if e.FieldsV1 == nil {
		return set, nil
	}
	return set, set.FromJSON(e.FieldsV1.GetRawReader())
}

// spelled returns a path in the notation of users: spec.modules[supersede.rego].source.
func spelled(path fieldpath.Path) string {
	var out strings.Builder
	for i, element := range path {
		switch {
		case element.FieldName != nil && plain(*element.FieldName):
			if i > 0 {
				out.WriteByte('.')
			}
			out.WriteString(*element.FieldName)
		case element.FieldName != nil:
			fmt.Fprintf(&out, "[%s]", *element.FieldName)
		case element.Key != nil:
			var values []string
			for _, field := range *element.Key {
				values = append(values, fmt.Sprint(field.Value.Unstructured()))
			}
			fmt.Fprintf(&out, "[%s]", strings.Join(values, " "))
		case element.Value != nil:
			fmt.Fprintf(&out, "[%v]", (*element.Value).Unstructured())
		}
	}
	return out.String()
}

// plain reports whether a name can be written after a dot.
func plain(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}
