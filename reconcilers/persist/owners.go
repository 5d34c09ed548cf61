package persist

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// DropLostOwners removes owners of our kinds that no longer exist from an object that is about to take over what an
// earlier object has on its runtime, and reports whether there were any. Backup tools restore ownerReferences with
// UIDs that no longer exist: the garbage collector would delete such an object, and its data with it. The write
// requires the resourceVersion that was read, so that an object that was deleted meanwhile takes nothing over.
func DropLostOwners(ctx context.Context, live client.Reader, c client.Client, o client.Object) (bool, error) {
	owners := o.GetOwnerReferences()
	kept := make([]metav1.OwnerReference, 0, len(owners))
	for _, owner := range owners {
		lost, err := lostOwner(ctx, live, o.GetNamespace(), owner)
		if err != nil {
			return false, err
		}
		if !lost {
			kept = append(kept, owner)
		}
	}
	if len(kept) == len(owners) {
		return false, nil
	}
	before := o.DeepCopyObject().(client.Object)
	o.SetOwnerReferences(slices.Clip(kept))
	if err := c.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("removing owners of %s that no longer exist: %w", client.ObjectKeyFromObject(o), err)
	}
	return true, nil
}

// lostOwner reports whether an owner is one of our kinds and no longer exists with that UID.
func lostOwner(ctx context.Context, live client.Reader, namespace string, owner metav1.OwnerReference) (bool, error) {
	of := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	if of.Group != v1alpha1.GroupVersion.Group {
		return false, nil
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(of)
	err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, there)
	switch {
	case meta.IsNoMatchError(err): // the garbage collector ignores it too
		return false, nil
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("reading owner %s %s: %w", owner.Kind, owner.Name, err)
	}
	return err != nil || there.UID != owner.UID, nil
}
