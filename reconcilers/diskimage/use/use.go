// Package use finds the images that disks and machines use.
package use

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Changed drops updates that do not matter to disks and machines waiting for an image, above all import progress.
var Changed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VMDiskImage)
	now, is := e.ObjectNew.(*v1alpha1.VMDiskImage)
	if !was || !is {
		return false
	}
	reason, message := before.Unusable()
	nowReason, nowMessage := now.Unusable()
	return reason != nowReason || message != nowMessage
}}

// Find reads an image for an object of a namespace. The reason is why the object may not use it, ReasonImageMissing or ReasonImageNotAllowed,
// and empty if it may, whether or not the image can be used yet.
func Find(ctx context.Context, live client.Reader, name types.NamespacedName, namespace string) (
	image *v1alpha1.VMDiskImage, reason v1alpha1.ConditionReason, message string, err error,
) {
	image = &v1alpha1.VMDiskImage{}
	if err := live.Get(ctx, name, image); apierrors.IsNotFound(err) {
		return nil, v1alpha1.ReasonImageMissing, v1alpha1.ImageMissing(name), nil
	} else if err != nil {
		return nil, "", "", fmt.Errorf("reading VMDiskImage %s: %w", name, err)
	}
	if allowed, err := allows(ctx, live, image, namespace); err != nil {
		return nil, "", "", err
	} else if !allowed {
		return nil, v1alpha1.ReasonImageNotAllowed, v1alpha1.ImageNotAllowed(name, namespace), nil
	}
	return image, "", "", nil
}

// allows reports whether objects of a namespace may use an image. For a namespace other than the image's it reads that namespace's labels.
func allows(ctx context.Context, live client.Reader, image *v1alpha1.VMDiskImage, namespace string) (bool, error) {
	if image.Namespace == namespace {
		return true, nil
	}
	of := &corev1.Namespace{}
	if err := live.Get(ctx, types.NamespacedName{Name: namespace}, of); err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	return image.Spec.AllowedNamespaces.Allows(of.Labels), nil
}
