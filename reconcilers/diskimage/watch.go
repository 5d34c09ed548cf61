package diskimage

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// watchChildren returns the sources of changes of images' objects. Each starts when the API server serves its kind.
// They have a cache of their own with only the metadata of these objects.
func watchChildren(mgr ctrl.Manager) (sources []source.Source, err error) {
	ours, err := labels.NewRequirement(v1alpha1.LabelDiskImage, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	children, err := watch.Cache(mgr, cache.Options{DefaultLabelSelector: labels.NewSelector().Add(*ours)})
	if err != nil {
		return nil, fmt.Errorf("creating a cache: %w", err)
	}
	for _, kind := range []schema.GroupVersionKind{
		cdiv1.SchemeGroupVersion.WithKind("DataVolume"),
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
		snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshot"),
	} {
		child := &metav1.PartialObjectMetadata{}
		child.SetGroupVersionKind(kind)
		from := source.Kind[client.Object](children, child, handler.EnqueueRequestsFromMapFunc(imageOf))
		sources = append(sources, watch.WhenServed(mgr, kind, from))
	}
	return sources, nil
}

// imageOf returns a request for the image that an object names. The annotation is not trusted: the pass reads the
// image's objects itself.
func imageOf(_ context.Context, child client.Object) []reconcile.Request {
	name := child.GetAnnotations()[v1alpha1.AnnotationDiskImageName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: child.GetNamespace(), Name: name}}}
}
