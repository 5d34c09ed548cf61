package statuses

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
)

// filling makes values for the fields of a schema that exceed its limits.
type filling struct {
	text  string // the texts consist of
	many  bool   // items, keys and characters
	count int    // of texts, so that they differ
}

func (f *filling) of(s apiextensionsv1.JSONSchemaProps) any {
	switch {
	case s.Format == "date-time":
		return "2030-01-01T00:00:00.000000Z"
	case s.XIntOrString:
		return "1Gi"
	case s.Type == "string":
		f.count++
		text := fmt.Sprint(f.text, f.count)
		if f.text == "" {
			return ""
		}
		if n := s.MaxLength; n != nil && f.many {
			text += strings.Repeat(f.text, int(*n)+50)
		}
		return text
	case s.Type == "integer":
		if f.many {
			return int64(1) << 30
		}
		return int64(-1) << 30
	case s.Type == "boolean":
		return true
	case s.Type == "array":
		n := int64(2)
		if s.MaxItems != nil && f.many {
			n = *s.MaxItems + 3
		}
		items := []any{}
		for range n {
			items = append(items, f.of(*s.Items.Schema))
		}
		return items
	case s.AdditionalProperties != nil:
		n := int64(2)
		if s.MaxProperties != nil && f.many {
			n = *s.MaxProperties + 3
		}
		values := map[string]any{}
		for i := range n {
			values[fmt.Sprint("key", i)] = f.of(*s.AdditionalProperties.Schema)
		}
		return values
	}
	values := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		values[name] = f.of(s.Properties[name])
	}
	return values
}

// checker returns the errors of the API server for the status of a kind.
func checker(t *testing.T, s apiextensionsv1.JSONSchemaProps) func(status any) field.ErrorList {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&s, internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	values, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	return func(status any) field.ErrorList {
		errs := validation.ValidateCustomResource(nil, status, values)
		if object, is := status.(map[string]any); is {
			errs = append(errs, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
		}
		return errs
	}
}

// The API server accepts each status after fit, whether its fields have too much, too little, or other characters.
func TestEveryStatusFits(t *testing.T) {
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(crds); err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		s := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
		b, err := newBound(s)
		if err != nil {
			t.Fatal(err)
		}
		check := checker(t, s)
		for name, fill := range map[string]filling{
			"large": {text: "a", many: true}, "large, of several bytes": {text: "\u00e9\U0001F600", many: true},
			"small": {text: "a"}, "empty": {},
		} {
			t.Run(crd.Spec.Names.Kind+", "+name, func(t *testing.T) {
				object, err := scheme.New(v1alpha1.GroupVersion.WithKind(crd.Spec.Names.Kind))
				if err != nil {
					t.Fatal(err)
				}
				status := reflect.ValueOf(object).Elem().FieldByName("Status").Addr().Interface()
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fill.of(s).(map[string]any), status); err != nil {
					t.Fatal(err)
				}
				written := fit(t, b, status)
				if errs := check(written); len(errs) > 0 {
					t.Errorf("the API server says %v", errs[:min(len(errs), 5)])
				}
				if again := fit(t, b, status); !reflect.DeepEqual(written, again) {
					t.Error("what fits is changed again")
				}
			})
		}
	}
}

// fit makes a status fit in place, and returns it as it is written.
func fit(t *testing.T, b *bound, status any) map[string]any {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		t.Fatal(err)
	}
	fitted, _ := b.fit(content)
	fresh := reflect.New(reflect.TypeOf(status).Elem())
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fitted.(map[string]any), fresh.Interface()); err != nil {
		t.Fatal(err)
	}
	reflect.ValueOf(status).Elem().Set(fresh.Elem())
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

// Only the parts of a status that exceed a limit are cut.
func TestWhatIsLeftOfAStatus(t *testing.T) {
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	newClient, err := NewClient(crds)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	made, err := newClient(&rest.Config{}, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard", ResourceVersion: "1"}}
	made = fitting{fake.NewClientBuilder().WithScheme(scheme).WithObjects(policy.DeepCopy()).WithStatusSubresource(policy).Build(), made.(fitting).bounds}
	long := strings.Repeat("r", 300) // roles have names of any length
	policy.Status.Violations = &v1alpha1.PolicyViolations{AuditedAt: metav1.Unix(1_900_000_000, 0), First: []v1alpha1.PolicyViolation{{Name: long}, {Name: "short"}}}
	policy.Status.Conditions = []metav1.Condition{v1alpha1.ConditionReady.Condition("True", "Ready", 1, "as it is")}
	policy.Status.Conditions[0].LastTransitionTime = metav1.Unix(1_900_000_000, 0)
	want := policy.DeepCopy().Status
	want.Violations.First[0].Name = long[:253]
	for name, write := range map[string]func(context.Context, client.Object) error{
		"update": func(ctx context.Context, o client.Object) error { return made.Status().Update(ctx, o) },
		"patch": func(ctx context.Context, o client.Object) error {
			return made.Status().Patch(ctx, o, client.MergeFrom(&v1alpha1.RegoPolicy{}))
		},
	} {
		written, stored := policy.DeepCopy(), &v1alpha1.RegoPolicy{}
		if err := made.Get(t.Context(), client.ObjectKeyFromObject(policy), stored); err != nil {
			t.Fatal(err)
		}
		written.ResourceVersion = stored.ResourceVersion
		if err := write(t.Context(), written); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(written.Status.Violations, want.Violations) || len(written.Status.Conditions) != 1 || written.Status.Conditions[0].Message != "as it is" {
			t.Errorf("%s: it is %+v", name, written.Status)
		}
	}
}
