package drive

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// ImageChanged drops updates that do not matter to disks and machines waiting for an image, above all import
// progress.
var ImageChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VMDiskImage)
	now, is := e.ObjectNew.(*v1alpha1.VMDiskImage)
	if !was || !is {
		return false
	}
	reason, message := before.Unusable()
	nowReason, nowMessage := now.Unusable()
	return reason != nowReason || message != nowMessage
}}

// MayUse reports whether objects of a namespace may use an image. For a namespace other than the image's it reads
// that namespace's labels.
func MayUse(ctx context.Context, live client.Reader, image *v1alpha1.VMDiskImage, namespace string) (bool, error) {
	if image.Namespace == namespace {
		return true, nil
	}
	of := &corev1.Namespace{}
	if err := live.Get(ctx, types.NamespacedName{Name: namespace}, of); err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	return image.Spec.AllowedNamespaces.Allows(of.Labels), nil
}
