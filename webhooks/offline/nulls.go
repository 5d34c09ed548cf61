package offline

import (
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// prune removes what the API server drops while it decodes an object, and returns the fields that are not in its schema. Metadata
// is the same for all kinds: there null means absent, and a null label or annotation is empty.
func (k *kind) prune(u *unstructured.Unstructured) (unknown []string, err error) {
	if k.schema != nil {
		return k.schema.prune(u)
	}
	metadata, found, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil || !found {
		return nil, err
	}
	if err := objectmeta.SetObjectMeta(u.Object, metadata); err != nil {
		return nil, err
	}
	k.resolveNulls(u)
	return unknown, nil
}

// resolveNulls replaces each null of an object of a built-in kind by the zero value of its Go field. An object that does not fit
// the type is not changed, so that policies see it.
func (k *kind) resolveNulls(u *unstructured.Unstructured) {
	typed, err := clientgoscheme.Scheme.New(k.GroupVersionKind)
	if err != nil {
		return
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return
	}
	if decoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err == nil {
		resolveNulls(u.Object, decoded)
	}
}

func resolveNulls(value, decoded any) {
	switch value := value.(type) {
	case map[string]any:
		decoded, _ := decoded.(map[string]any)
		for name, member := range value {
			instead, present := decoded[name]
			switch {
			case member != nil:
				resolveNulls(member, instead)
			case present && instead != nil:
				value[name] = instead
			default:
				delete(value, name)
			}
		}
	case []any:
		decoded, _ := decoded.([]any)
		for i := range min(len(value), len(decoded)) {
			if value[i] == nil {
				value[i] = decoded[i]
			} else {
				resolveNulls(value[i], decoded[i])
			}
		}
	}
}
