package offline

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Parse reads what stands in a file.
var Parse = parse

// Stored is an object of the world; nil if it is not there.
func (r *Reviewer) Stored(kind schema.GroupKind, namespace, name string) *unstructured.Unstructured {
	return r.world.get(identity{kind, namespace, name})
}

// Admit makes of a new object what the API server would store of it, or says why it would not.
func (k *Kinds) Admit(ctx context.Context, u *unstructured.Unstructured) error {
	is := k.known[u.GroupVersionKind()]
	if is == nil {
		return fmt.Errorf("no kind %s", u.GroupVersionKind())
	}
	if _, err := is.schema.decode(u); err != nil {
		return err
	}
	return is.schema.validateNew(ctx, is, u).ToAggregate()
}
