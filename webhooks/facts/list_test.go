package facts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

// selecting is an API server that selects by some fields only, and gives two objects a page.
type selecting struct {
	client.Client
	objects    []*unstructured.Unstructured
	selectable []string
	down       error // of every list of one object

	lists []string // the field selectors
}

func (s *selecting) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	s.lists = append(s.lists, o.FieldSelector.String())
	if o.Limit == 1 && s.down != nil {
		return s.down
	}
	for _, r := range o.FieldSelector.Requirements() {
		if !slices.Contains(s.selectable, r.Field) {
			return apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	from := 0
	if o.Continue != "" {
		_, _ = fmt.Sscan(o.Continue, &from)
	}
	list := into.(*unstructured.UnstructuredList)
	for i, object := range s.objects[from:] {
		if len(list.Items) == 2 {
			list.SetContinue(fmt.Sprint(from + i))
			return nil
		}
		text := fields.Set{}
		for _, path := range s.selectable {
			text[path], _, _ = unstructured.NestedString(object.Object, strings.Split(path, ".")...)
		}
		if (o.Namespace == "" || o.Namespace == object.GetNamespace()) && o.FieldSelector.Matches(text) &&
			(o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels()))) {
			list.Items = append(list.Items, *object.DeepCopy())
		}
	}
	return nil
}

// machines gives random objects with disks.
func machines(r *rand.Rand, n int) (all []*unstructured.Unstructured) {
	some := func() any { return []any{"a", "b", "", nil, int64(1), "1:a"}[r.IntN(6)] }
	for i := range n {
		var disks []any
		for range r.IntN(4) {
			disks = append(disks, []any{
				map[string]any{"name": some()}, map[string]any{"name": []any{map[string]any{"x": "a"}}}, "a", nil,
				map[string]any{"name": some(), "parts": []any{map[string]any{"id": some()}, map[string]any{"id": "b"}}},
			}[r.IntN(5)])
		}
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Machine", "metadata": map[string]any{"name": fmt.Sprint(i), "uid": fmt.Sprint(i)},
			"spec":   map[string]any{"pool": some(), "node": some(), "tags": []any{some(), some()}, "disks": disks},
			"status": map[string]any{"phase": some()},
		}}
		object.SetNamespace([]string{"", "ns", "ns2"}[r.IntN(3)])
		object.SetLabels(map[string]string{"l": []string{"a", "b"}[r.IntN(2)]})
		all = append(all, object)
	}
	return all
}

// at gives what is at a path, as one would say it without the code under test.
func at(value any, path ...string) (texts []string) {
	if len(path) == 0 {
		if text, is := value.(string); is && text != "" {
			texts = append(texts, text)
		}
		return texts
	}
	object, _ := value.(map[string]any)
	name, listed := strings.CutSuffix(path[0], "[]")
	if !listed {
		return at(object[name], path[1:]...)
	}
	elements, _ := object[name].([]any)
	for _, element := range elements {
		texts = append(texts, at(element, path[1:]...)...)
	}
	return texts
}

func namesOf(t *testing.T, objects []*object, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range objects {
		names = append(names, o.name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Whatever is asked for, by one field or by several, through lists or not: the index, and an API server that selects by some of the
// fields or by none, find the same.
func TestCachedAnswersAreTheLiveOnes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	indexes := []string{
		"spec.pool", "spec.tags[]", "spec.disks[].name", "spec.disks[].parts[].id", "spec.pool,spec.node", "status.phase,spec.disks[].name,spec.pool",
	}
	indexers := toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}
	for _, index := range indexes {
		indexers[indexName(engine.IndexFields(index))] = byFields(engine.IndexFields(index))
	}
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	several := 0
	for range rounds {
		objects := machines(r, 30)
		cached := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers)
		for _, o := range objects {
			made, err := Compact(o.DeepCopy())
			if err == nil {
				err = cached.Add(made)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		server := &selecting{objects: objects}
		for _, field := range []string{"spec.pool", "spec.node", "status.phase"} {
			if r.IntN(2) == 0 {
				server.selectable = append(server.selectable, field)
			}
		}
		l := newLive(server)
		for range 30 {
			q := engine.Query{APIVersion: "v1", Kind: "Machine", Namespace: []string{"", "ns"}[r.IntN(2)], Fields: map[string]string{}}
			for _, field := range engine.IndexFields(indexes[r.IntN(len(indexes))]) {
				q.Fields[field] = []string{"a", "b", "1:a"}[r.IntN(3)]
			}
			q.Namespaces = [][]string{nil, nil, nil, {}, {"ns2"}, {"ns", "gone", "ns2", "ns"}, crowded}[r.IntN(7)]
			if r.IntN(2) == 0 {
				q.Except = map[string][]string{[]string{"status.phase", "spec.tags[]", "spec.no.such"}[r.IntN(3)]: {"a", "1:a"}}
			}
			if r.IntN(4) == 0 {
				q.Labels = map[string]string{"l": "a"}
			}
			var want []*object
			for _, o := range objects {
				lacks := func(field, value string) bool {
					return !slices.Contains(at(o.Object, strings.Split(field, ".")...), value)
				}
				is := (q.Namespace == "" || o.GetNamespace() == "" || o.GetNamespace() == q.Namespace) && (q.Labels == nil || o.GetLabels()["l"] == "a")
				for field, value := range q.Fields {
					is = is && !lacks(field, value)
				}
				for field, values := range q.Except {
					is = is && !slices.ContainsFunc(values, func(value string) bool { return !lacks(field, value) })
				}
				is = is && (q.Namespaces == nil || slices.Contains(q.Namespaces, o.GetNamespace()))
				// Of a kind all objects are in namespaces or none is. A cache finds both, and an API server those of the namespace.
				if is && (q.Places() == nil || o.GetNamespace() != "") {
					want = append(want, mustObject(t, o))
				}
			}
			found, err := selectList(cached, q)
			nowhere := func(o *object) bool { return q.Places() != nil && o.namespace == "" }
			indexed := namesOf(t, slices.DeleteFunc(found, nowhere), err)
			read, err := l.list(t.Context(), q)
			read.objects = slices.DeleteFunc(read.objects, nowhere)
			if lived, wanted := namesOf(t, read.objects, err), namesOf(t, want, nil); indexed != wanted || lived != wanted {
				t.Fatalf("%+v\ncached %s\nlive   %s\nwant   %s", q, indexed, lived, wanted)
			}
			if len(want) > 1 {
				several++
			}
		}
	}
	if several < 3*rounds {
		t.Errorf("only %d questions had more than one answer", several)
	}
}

// crowded are more namespaces than are listed one by one.
var crowded = func() []string {
	all := []string{"ns"}
	for i := range mostPlaces {
		all = append(all, fmt.Sprint("other-", i))
	}
	return all
}()

// limited is an API server with objects of one size, which notes how many it is asked for at once.
type limited struct {
	client.Client
	text   string
	left   int
	limits []int64
}

func (s *limited) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	s.limits = append(s.limits, o.Limit)
	list := into.(*unstructured.UnstructuredList)
	for range min(o.Limit, int64(s.left)) {
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{
			"kind": "Machine", "metadata": map[string]any{"name": "x", "annotations": map[string]any{"fat": s.text}},
		}})
		s.left--
	}
	if s.left > 0 {
		list.SetContinue("more")
	}
	return nil
}

// A page of large objects has few of them, and of what a policy does not read nothing is kept: an object of a megabyte costs it no more than
// any other.
func TestLargeObjectsAreReadInSmallPages(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		n      int
		limits []int64
	}{
		"small": {"x", 1000, []int64{firstPage, pageSize, pageSize}},
		"large": {strings.Repeat("x", 1<<20), 80, append([]int64{firstPage}, slices.Repeat([]int64{3}, 10)...)},
	} {
		t.Run(name, func(t *testing.T) {
			server := &limited{text: tc.text, left: tc.n}
			var part *engine.Part
			if err := json.Unmarshal([]byte(`{"metadata":{"name":true}}`), &part); err != nil {
				t.Fatal(err)
			}
			f, err := newLive(server).list(t.Context(), engine.Query{APIVersion: "v1", Kind: "Machine", Part: part})
			if err != nil || len(f.objects) != tc.n || !slices.Equal(server.limits, tc.limits) {
				t.Fatalf("%d objects, asked for %v, %v", len(f.objects), server.limits, err)
			}
			if text := string(f.objects[0].value.Raw()); text != `{"metadata":{"name":"x"}}` || f.part != part {
				t.Errorf("kept %.100s, %v", text, f.part)
			}
		})
	}
}

// What the API server selects by it is asked to select by, and what it refuses is not tried at every question.
func TestFieldsThatTheAPIServerRefusesAreFiltered(t *testing.T) {
	server := &selecting{selectable: []string{"spec.pool"}}
	l := newLive(server)
	q := engine.Query{APIVersion: "v1", Kind: "Machine", Fields: map[string]string{"spec.pool": "a", "spec.node": "b", "spec.disks[].name": "c"}}
	for range 2 {
		if _, err := l.list(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	for _, both := range server.lists[:1] {
		if !strings.Contains(both, "spec.pool=a") || !strings.Contains(both, "spec.node=b") || strings.Contains(both, "disks") {
			t.Errorf("at first it is asked for %s", both)
		}
	}
	if last := server.lists[3:]; len(server.lists) != 5 || last[0] != "spec.pool=a" || last[1] != "spec.pool=a" {
		t.Errorf("it is asked for %q", server.lists)
	}
	l.unselectable.known.Remove(fieldOf{schema.FromAPIVersionAndKind("v1", "Machine"), "spec.node"})
	server.selectable = append(server.selectable, "spec.node")
	if _, err := l.list(t.Context(), q); err != nil || len(server.lists) != 6 {
		t.Errorf("a field that can be selected by now: %v, asked for %q", err, server.lists)
	}
}

// Unknown is not empty: neither what was refused for another reason than its fields, nor what is too much.
func TestListsAreNeverCutShort(t *testing.T) {
	q := engine.Query{APIVersion: "v1", Kind: "Machine", Fields: map[string]string{"spec.disks[].name": "none"}}
	for name, tc := range map[string]struct {
		server client.Client
		query  func(q *engine.Query)
		want   string
	}{
		"refused for another reason": {refusing{}, func(*engine.Query) {}, "no such luck"},
		"nobody says by what it selects": {&selecting{down: errors.New("down")}, func(q *engine.Query) { q.Fields = map[string]string{"spec.node": "b"} },
			"down\nfield label not supported: spec.node"},
		"too many to look through": {&endless{}, func(q *engine.Query) { q.Except = map[string][]string{"spec.tags[]": {"a"}} },
			"more than 10000 objects of kind Machine to search, because the API server cannot select by spec.disks[].name, spec.tags[]"},
		"too many that match": {&endless{}, func(q *engine.Query) { q.Fields = nil }, "more than 10000 objects of kind Machine match"},
		"too much that matches": {&endless{text: strings.Repeat("x", 1<<18)}, func(q *engine.Query) { q.Fields = nil },
			"the matching objects of kind Machine have more than 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			q := q
			q.Fields = maps.Clone(q.Fields)
			tc.query(&q)
			f, err := newLive(tc.server).list(t.Context(), q)
			if err == nil || err.Error() != tc.want || f.objects != nil {
				t.Errorf("got %d objects and %v", len(f.objects), err)
			}
		})
	}
}

// refusing is an API server that takes no question.
type refusing struct{ client.Client }

func (refusing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return apierrors.NewBadRequest("no such luck")
}

// endless is an API server that always has more.
type endless struct {
	client.Client
	text string
}

func (e *endless) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list := into.(*unstructured.UnstructuredList)
	for range pageSize {
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{"kind": "Machine", "text": e.text}})
	}
	list.SetContinue("more")
	return nil
}
