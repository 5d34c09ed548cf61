package decoding

import (
	"bytes"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// object is what was noticed of an object while it was copied.
type object struct {
	apiVersion, kind string
	types.NamespacedName
	uid types.UID
	// metadata is where the metadata is in the copy.
	metadata struct{ from, to int }
	// deep tells that something of it is nested too deep.
	deep bool
}

// copier copies objects.
type copier struct {
	*scanner
	// drop has managedFields left out. Those that are nested too deep always are.
	drop bool
}

// object appends the next object.
func (c copier) object(out []byte) (_ []byte, o object, err error) {
	c.numbers = false
	start := len(out)
	out, err = c.scanner.object(out, func(out []byte, name string) ([]byte, bool, error) {
		return c.member(out, name, start, &o)
	})
	return out, o, err
}

// member appends a member of an object that begins at start.
func (c copier) member(out []byte, name string, start int, o *object) (_ []byte, keep bool, err error) {
	at := len(out)
	if first, err := c.peek(); name == "metadata" && first == '{' {
		out, err = c.scanner.object(out, func(out []byte, name string) ([]byte, bool, error) { return c.meta(out, name, o) })
		o.metadata.from, o.metadata.to = at-start, len(out)-start
		return out, true, err
	} else if err != nil {
		return out, false, err
	}
	out, deep, err := c.value(out, maxDepth-1)
	o.deep = o.deep || deep
	switch name {
	case "apiVersion":
		o.apiVersion = textOf(out[at:])
	case "kind":
		o.kind = textOf(out[at:])
	}
	return out, true, err
}

// meta appends a member of the metadata of an object.
func (c copier) meta(out []byte, name string, o *object) (_ []byte, keep bool, err error) {
	at := len(out)
	out, deep, err := c.value(out, maxDepth-2)
	switch name {
	case "managedFields":
		return out, !deep && !c.drop, err
	case "namespace":
		o.Namespace = textOf(out[at:])
	case "name":
		o.Name = textOf(out[at:])
	case "uid":
		o.uid = types.UID(textOf(out[at:]))
	}
	o.deep = o.deep || deep
	return out, true, err
}

// gvk is the kind of the object.
func (o *object) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.apiVersion, o.kind)
}

// bare is an object with nothing but kind and metadata.
func (o *object) bare(text []byte) []byte {
	less, err := json.Marshal(struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   json.RawMessage `json:"metadata,omitempty"`
	}{o.apiVersion, o.kind, text[o.metadata.from:o.metadata.to]})
	if err != nil { // of metadata that are no JSON
		return text
	}
	return less
}

// decodes tells why an object does not decode into its type; nil if the scheme has none.
func decodes(scheme *runtime.Scheme, o *object, text []byte, numbers bool) *Error {
	into, err := scheme.New(o.gvk())
	if err != nil {
		return nil
	}
	e := &Error{GroupVersionKind: o.gvk(), NamespacedName: o.NamespacedName, UID: o.uid}
	if o.deep {
		e.Err = errDeep
		return e
	}
	if numbers {
		e.at(fault(reflect.TypeOf(into), text, nil))
	}
	if e.Err == nil {
		if e.Err = utiljson.Unmarshal(text, into); e.Err != nil {
			e.at(fault(reflect.TypeOf(into), text, nil))
		}
	}
	if e.Err == nil {
		return nil
	}
	return e
}

// Into decodes an unstructured object into its type, of which the scheme knows. An [Error] says why it does not decode.
func Into(scheme *runtime.Scheme, from *unstructured.Unstructured, into runtime.Object) error {
	text, err := from.MarshalJSON()
	if err != nil {
		return err
	}
	c := copier{newScanner(bytes.NewReader(text)), false}
	out, o, err := c.object(nil)
	if err != nil {
		return err
	}
	if e := decodes(scheme, &o, out, c.numbers); e != nil {
		return e
	}
	return utiljson.Unmarshal(out, into)
}

// without is an object without a member.
func without(text []byte, left string) []byte {
	c := copier{scanner: newScanner(bytes.NewReader(text))}
	out, _ := c.scanner.object(nil, func(out []byte, name string) ([]byte, bool, error) { // what was copied is an object
		out, _, err := c.value(out, maxDepth)
		return out, name != left, err
	})
	return out
}
