package facts

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/webhooks/engine"
)

// What has no text is not kept without its value.
func TestCompactOfWhatIsNoJSON(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "a"}, "spec": math.NaN()}}
	if made, err := Compact(o); err == nil {
		t.Errorf("got %+v", made)
	}
}

func mustObject(t *testing.T, o *unstructured.Unstructured) *object {
	t.Helper()
	made, err := newObject(o)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// An object that is kept as text is found and read as the one that it was made of.
func TestCompactChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := []any{"a", "b", "", "line\n\u00e9 <\"\\", nil, true, int64(7), 1.5, []any{"a"}, map[string]any{}}
	some := func(of ...string) map[string]any {
		object := map[string]any{}
		for _, name := range of {
			if r.IntN(4) > 0 {
				object[name] = values[r.IntN(len(values))]
			}
		}
		return object
	}
	selected := 0
	for range 1000 {
		metadata := some("generation", "annotations")
		maps.Copy(metadata, map[string]any{
			"name": "n", "namespace": []any{"", "ns"}[r.IntN(2)], "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-11-20T10:00:00Z",
		})
		labels := map[string]any{}
		for _, name := range []string{"x", "y.z/w"} {
			if r.IntN(3) > 0 {
				labels[name] = []any{"a", "b"}[r.IntN(2)]
			}
		}
		metadata["labels"] = labels
		decoded := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": some("a", "b"), "status": some("a", "phase"),
		}}
		made, err := Compact(decoded.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Compact(made); err != nil || again != made {
			t.Fatalf("a second time it gives %v, %v", again, err)
		}
		text := made.(*object)
		want, err := engine.ValueOf(decoded.Object)
		if err != nil {
			t.Fatal(err)
		}
		if !text.value.Equal(want) {
			t.Fatalf("it is %v, want %v", text.value, want)
		}
		if text.namespace != decoded.GetNamespace() || text.name != "n" || text.uid != "u" || text.resourceVersion != "7" ||
			text.created != decoded.GetCreationTimestamp().Unix() {
			t.Fatalf("filed as %+v, want %+v", text, want)
		}
		for range 4 {
			q := engine.Query{
				Namespace: []string{"", "ns"}[r.IntN(2)], Labels: map[string]string{[]string{"x", "y.z/w"}[r.IntN(2)]: "a"},
				Fields: map[string]string{[]string{"spec.a", "status.phase", "spec"}[r.IntN(3)]: []string{"a", "line\n\u00e9 <\"\\"}[r.IntN(2)]},
				Except: map[string][]string{[]string{"status.phase", "spec.b", "no.such"}[r.IntN(3)]: {"a", "b"}},
			}
			got := text.selected(q)
			if is := selectedDecoded(q, decoded); got != is || Selects(q, decoded) != is {
				t.Fatalf("%+v selects it: %t, want %t, of %v", q, got, is, decoded.Object)
			}
			if got {
				selected++
			}
		}
	}
	if selected < 20 {
		t.Errorf("only %d were selected", selected)
	}
}

// selectedDecoded is what the API server does.
func selectedDecoded(q engine.Query, o *unstructured.Unstructured) bool {
	at := func(path string) (string, bool) {
		value, ok, err := unstructured.NestedString(o.Object, strings.Split(path, ".")...)
		return value, ok && err == nil
	}
	for field, want := range q.Fields {
		if got, ok := at(field); !ok || got != want {
			return false
		}
	}
	for field, values := range q.Except {
		if got, ok := at(field); ok && slices.Contains(values, got) {
			return false
		}
	}
	for name, want := range q.Labels {
		if got, ok := o.GetLabels()[name]; !ok || got != want {
			return false
		}
	}
	return q.Namespace == "" || q.Namespace == o.GetNamespace()
}
