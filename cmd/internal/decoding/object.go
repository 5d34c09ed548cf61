package decoding

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// object has the identity of an object that was copied.
type object struct {
	apiVersion, kind string
	types.NamespacedName
	uid types.UID
	// metadata is the position of the metadata in the copy.
	metadata struct{ from, to int }
	// deep is set if values in the object are nested too deeply.
	deep bool
}

// copier copies objects and reads their identity.
type copier struct {
	*scanner
	// drop leaves managedFields out. Managed fields that are nested too deeply are always left out.
	drop bool
	// shorten is for ShortenAnnotations.
	shorten bool
}

// mostAnnotations is how many bytes the annotations of an object may have that are not Sallyport's, and again those that are.
const mostAnnotations = 16 << 10

// annotations appends the annotations of an object. A value that is too long becomes null, so that a policy does not take it for absent.
func (c copier) annotations(out []byte) ([]byte, error) {
	var used [2]int
	return c.scanner.object(out, func(out []byte, name string) ([]byte, bool, error) {
		at := len(out)
		out, _, err := c.value(out, maxDepth-3)
		if name == corev1.LastAppliedConfigAnnotation {
			return out, false, err
		}
		bytes := &used[0]
		if strings.HasPrefix(name, v1alpha1.GroupName+"/") {
			bytes = &used[1]
		}
		if size := len(name) + len(out) - at; *bytes+size <= mostAnnotations {
			*bytes += size
		} else {
			out = append(out[:at], "null"...)
		}
		return out, true, err
	})
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
	if first, err := c.peek(); c.shorten && name == "annotations" && first == '{' {
		out, err = c.annotations(out)
		return out, true, err
	} else if err != nil {
		return out, false, err
	}
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

func (o *object) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.apiVersion, o.kind)
}

// bare returns the object with only its kind and metadata.
func (o *object) bare(text []byte) []byte {
	less, err := json.Marshal(struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   json.RawMessage `json:"metadata,omitempty"`
	}{o.apiVersion, o.kind, text[o.metadata.from:o.metadata.to]})
	if err != nil { // the metadata is not valid JSON
		return text
	}
	return less
}

// decodes returns an error if the object does not decode into its type. It returns nil if the scheme does not have the type.
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
		e.set(fault(reflect.TypeOf(into), text, nil))
	}
	if e.Err == nil {
		if e.Err = utiljson.Unmarshal(text, into); e.Err != nil {
			e.set(fault(reflect.TypeOf(into), text, nil))
		}
	}
	if e.Err == nil {
		return nil
	}
	return e
}

// Into decodes an unstructured object into a type of the scheme. The error is an [Error] if the object does not decode.
func Into(scheme *runtime.Scheme, from *unstructured.Unstructured, into runtime.Object) error {
	text, err := from.MarshalJSON()
	if err != nil {
		return err
	}
	c := copier{scanner: newScanner(bytes.NewReader(text))}
	out, o, err := c.object(nil)
	if err != nil {
		return err
	}
	if e := decodes(scheme, &o, out, c.numbers); e != nil {
		return e
	}
	return utiljson.Unmarshal(out, into)
}

// without returns an object without one of its members.
func without(text []byte, left string) []byte {
	c := copier{scanner: newScanner(bytes.NewReader(text))}
	out, _ := c.scanner.object(nil, func(out []byte, name string) ([]byte, bool, error) { // the text was copied before, so it is an object
		out, _, err := c.value(out, maxDepth)
		return out, name != left, err
	})
	return out
}
