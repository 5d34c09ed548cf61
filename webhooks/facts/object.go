package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// object is a cached object: its keys and its JSON.
type object struct {
	namespace, name string
	uid             types.UID
	resourceVersion string
	created         int64 // seconds
	value           engine.Value
	// fieldTexts is the last field that Except tested; it is nearly always the same.
	lastExcept atomic.Pointer[fieldTexts]
}

type fieldTexts struct {
	field string
	texts []string
}

// Compact is the transform of a cache of facts. It keeps objects as JSON text. Decoded maps would take three times the memory, and the
// garbage collector would scan all of them, while few are ever read.
func Compact(o any) (any, error) {
	decoded, ok := o.(*unstructured.Unstructured)
	if !ok { // already transformed
		return o, nil
	}
	return newFact(decoded)
}

// mostAnnotations is how many bytes the annotations of a fact may have that are not Sallyport's, and again those that are: every replica
// caches all objects of the kinds that policies read.
const mostAnnotations = 16 << 10

// newFact returns an object as policies read it: without managed fields, and without the copy of it that kubectl apply keeps. Annotations
// beyond mostAnnotations are null, so that a policy does not take them for absent.
func newFact(o *unstructured.Unstructured) (*object, error) {
	o.SetManagedFields(nil)
	metadata, _ := o.Object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	used := map[bool]int{}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		text, _ := annotations[name].(string)
		own := strings.HasPrefix(name, v1alpha1.GroupName+"/")
		if used[own]+len(name)+len(text) > mostAnnotations {
			annotations[name] = nil
			continue
		}
		used[own] += len(name) + len(text)
	}
	return newObject(o)
}

func newObject(o *unstructured.Unstructured) (*object, error) {
	text, err := json.Marshal(o.Object)
	if err != nil {
		return nil, fmt.Errorf("writing %s %s as JSON: %w", o.GetKind(), o.GetName(), err)
	}
	return &object{
		namespace: unique.Make(o.GetNamespace()).Value(), // few distinct values
		name:      o.GetName(), uid: o.GetUID(), resourceVersion: o.GetResourceVersion(),
		created: o.GetCreationTimestamp().Unix(), value: engine.Text(text),
	}, nil
}

// reduced returns the object with a part of its value. It can no longer be selected.
func (o *object) reduced(to *engine.Part) *object {
	return &object{
		namespace: o.namespace, name: o.name, uid: o.uid, resourceVersion: o.resourceVersion, created: o.created, value: to.Of(o.value),
	}
}

// GetObjectMeta is for the cache's key function.
func (o *object) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.namespace, Name: o.name, UID: o.uid, ResourceVersion: o.resourceVersion}
}

// texts returns the non-empty strings at a path: at most one, unless the path goes through lists.
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

// keys returns the keys in an index of fields: one for each combination of their values.
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

// extended appends a value to a key. The length prefix makes keys of different lists of values distinct.
func extended(key, value string) string { return key + strconv.Itoa(len(value)) + ":" + value }

// isExcepted reports whether a query's Except excludes the object.
func (o *object) isExcepted(except map[string][]string) bool {
	for field, values := range except {
		found := o.lastExcept.Load()
		if found == nil || found.field != field {
			found = &fieldTexts{field, o.texts(field)}
			o.lastExcept.Store(found)
		}
		if slices.ContainsFunc(found.texts, func(text string) bool { return slices.Contains(values, text) }) {
			return true
		}
	}
	return false
}

// hasLabels reports whether the object has all of the labels.
func (o *object) hasLabels(labels map[string]string) bool {
	for name, value := range labels {
		if !o.mayContain(value) || o.value.Get("metadata").Get("labels").Get(name).Text() != value {
			return false
		}
	}
	return true
}

// mayContain reports whether a string may be somewhere in the object. It is a cheap test.
func (o *object) mayContain(text string) bool {
	raw := o.value.Raw()
	return raw == nil || strings.ContainsFunc(text, isEscaped) || bytes.Contains(raw, []byte(text))
}

// isEscaped reports whether JSON may have another text for a character.
func isEscaped(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\\<>&`, r) }

// selected reports whether a list query selects the object, which is of the query's kind.
func (o *object) selected(q engine.Query) bool {
	for field, value := range q.Fields {
		if !o.mayContain(value) || !slices.Contains(o.texts(field), value) {
			return false
		}
	}
	if q.Namespaces != nil && o.namespace != "" && !slices.Contains(q.Namespaces, o.namespace) {
		return false
	}
	return (q.Namespace == "" || q.Namespace == o.namespace) && o.hasLabels(q.Labels) && !o.isExcepted(q.Except)
}

// Selects reports whether a list query selects an object of its kind.
func Selects(q engine.Query, o *unstructured.Unstructured) bool {
	made, err := newObject(o)
	return err == nil && made.selected(q)
}
