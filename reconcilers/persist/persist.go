// Package persist writes the finalizers and the status of an object. If another client has changed the object since it was read, the write
// fails with a conflict, and the reconciler reads it again.
package persist

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Finalizer writes what change ([controllerutil.AddFinalizer] or RemoveFinalizer) does to the finalizers of an object, and reports whether
// there was anything to write.
func Finalizer(ctx context.Context, c client.Client, o client.Object, change func(client.Object, string) bool, name string) (bool, error) {
	before := o.DeepCopyObject().(client.Object)
	if !change(o, name) {
		return false, nil
	}
	if err := c.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("writing the finalizers of %s: %w", describe(c, o), err)
	}
	return true, nil
}

// Hold adds the finalizer, unless the policy `defaults` did at creation, and reports whether the object has it. An object that is being
// deleted without it is kept by the finalizer of another controller only.
func Hold(ctx context.Context, c client.Client, o client.Object, name string) (bool, error) {
	if !o.GetDeletionTimestamp().IsZero() {
		return controllerutil.ContainsFinalizer(o, name), nil
	}
	_, err := Finalizer(ctx, c, o, controllerutil.AddFinalizer, name)
	return err == nil, err
}

// Release removes the finalizer.
func Release(ctx context.Context, c client.Client, o client.Object, name string) error {
	_, err := Finalizer(ctx, c, o, controllerutil.RemoveFinalizer, name)
	return err
}

// Status writes the status of an object, now, if it differs from the one that was read, and reports whether it does. Both are pointers.
func Status(ctx context.Context, c client.Client, o client.Object, read, now any) (bool, error) {
	if equality.Semantic.DeepEqual(read, now) {
		return false, nil
	}
	if err := c.Status().Update(ctx, o); err != nil {
		return false, fmt.Errorf("writing the status of %s: %w", describe(c, o), err)
	}
	return true, nil
}

// Result returns the result of a reconciliation that ended with err: after a conflict the object is read again immediately.
func Result(again time.Duration, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

func describe(c client.Client, o client.Object) string {
	kind, err := c.GroupVersionKindFor(o)
	if err != nil {
		kind.Kind = fmt.Sprintf("%T", o)
	}
	return kind.Kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")
}
