package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/webhooks/engine"
)

// object is one that facts are made of: what it is found by, and all of it.
type object struct {
	namespace, name string
	uid             types.UID
	resourceVersion string
	created         int64 // seconds
	value           engine.Value
	// sought is the last field by which somebody wanted the object to be left out. It is nearly always the same one.
	sought atomic.Pointer[sought]
}

type sought struct {
	field string
	texts []string
}

// Compact is the transform of a cache that facts are read from. It keeps objects as JSON text, without their managed fields. As the
// maps that clients decode them into they would take three times the memory, and the garbage collector would go through all of it
// again and again, while few of them are ever read.
func Compact(o any) (any, error) {
	decoded, ok := o.(*unstructured.Unstructured)
	if !ok { // it was here before
		return o, nil
	}
	decoded.SetManagedFields(nil)
	return newObject(decoded)
}

func newObject(o *unstructured.Unstructured) (*object, error) {
	text, err := json.Marshal(o.Object)
	if err != nil {
		return nil, fmt.Errorf("writing %s %s as JSON: %w", o.GetKind(), o.GetName(), err)
	}
	return &object{
		namespace: unique.Make(o.GetNamespace()).Value(), // of which there are few
		name:      o.GetName(), uid: o.GetUID(), resourceVersion: o.GetResourceVersion(),
		created: o.GetCreationTimestamp().Unix(), value: engine.Text(text),
	}, nil
}

// GetObjectMeta is for the cache, which files objects by it.
func (o *object) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.namespace, Name: o.name, UID: o.uid, ResourceVersion: o.resourceVersion}
}

// texts gives the strings at a path that are not empty: one at most, unless the path goes through lists.
func (o *object) texts(path string) (texts []string) {
	at := []engine.Value{o.value}
	for name := range strings.SplitSeq(path, ".") {
		name, listed := strings.CutSuffix(name, "[]")
		for i := range at {
			at[i] = at[i].Get(name)
		}
		if listed {
			lists := at
			at = nil
			for _, list := range lists {
				at = append(at, list.Elements()...)
			}
		}
	}
	for _, v := range at {
		if text := v.Text(); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// keys are what an index of fields files the object by: one for each combination of their values.
func (o *object) keys(fields []string) []string {
	keys := []string{""}
	for _, field := range fields {
		var longer []string
		for _, text := range o.texts(field) {
			for _, key := range keys {
				longer = append(longer, extended(key, text))
			}
		}
		keys = longer
	}
	return keys
}

// extended is the key of one value more. Lengths keep two lists of values from having one key.
func extended(key, value string) string { return key + strconv.Itoa(len(value)) + ":" + value }

// excepted tells whether the object is to be left out.
func (o *object) excepted(except map[string][]string) bool {
	for field, values := range except {
		found := o.sought.Load()
		if found == nil || found.field != field {
			found = &sought{field, o.texts(field)}
			o.sought.Store(found)
		}
		if slices.ContainsFunc(found.texts, func(text string) bool { return slices.Contains(values, text) }) {
			return true
		}
	}
	return false
}

// labelled tells whether the object has all of the labels.
func (o *object) labelled(labels map[string]string) bool {
	for name, value := range labels {
		if text := o.value.Raw(); text != nil && !bytes.Contains(text, []byte(value)) { // which is known sooner
			return false
		}
		if o.value.Get("metadata").Get("labels").Get(name).Text() != value {
			return false
		}
	}
	return true
}

// selected tells whether a query for a list asks for the object, of those of its kind.
func (o *object) selected(q engine.Query) bool {
	for field, value := range q.Fields {
		if !slices.Contains(o.texts(field), value) {
			return false
		}
	}
	if q.Namespaces != nil && o.namespace != "" && !slices.Contains(q.Namespaces, o.namespace) {
		return false
	}
	return (q.Namespace == "" || q.Namespace == o.namespace) && o.labelled(q.Labels) && !o.excepted(q.Except)
}

// Selects tells whether a query for a list asks for an object of its kind.
func Selects(q engine.Query, o *unstructured.Unstructured) bool {
	made, err := newObject(o)
	return err == nil && made.selected(q)
}
