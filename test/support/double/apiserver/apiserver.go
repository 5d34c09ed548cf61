// Package apiserver adds to the fake client of controller-runtime what a real API server does beside storing objects.
package apiserver

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// New returns a client that gives new objects a UID and a generation, counts every update as one of the spec, and rejects deletions whose
// preconditions do not hold.
func New(inner client.WithWatch) client.WithWatch {
	uids := 0
	return interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			uids++
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", uids)))
			o.SetGeneration(1)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			o.SetGeneration(o.GetGeneration() + 1)
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			present := o.DeepCopyObject().(client.Object)
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), present); err != nil {
				return err
			}
			p := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
			if p != nil && (p.UID != nil && *p.UID != present.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != present.GetResourceVersion()) {
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("the precondition failed"))
			}
			return c.Delete(ctx, o, opts...)
		},
	})
}

// graceful keeps a Pod that is deleted until its agent has removed the machine, as its grace period does.
const graceful = "example.com/graceful"

// ForNodes returns the client of the agents of nodes, which binds Pods, and deletes them gracefully from then on.
func ForNodes(api client.WithWatch) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, _ string, o, sub client.Object, _ ...client.SubResourceCreateOption) error {
			bound := o.DeepCopyObject().(*corev1.Pod)
			bound.Spec.NodeName, bound.Finalizers = sub.(*corev1.Binding).Target.Name, []string{graceful}
			return c.Patch(ctx, bound, client.MergeFrom(o))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			removed := o.DeepCopyObject().(*corev1.Pod)
			removed.Finalizers = nil
			return errors.Join(c.Delete(ctx, o, opts...), c.Patch(ctx, removed, client.MergeFrom(o)))
		},
	})
}
