package diskimage

import (
	"context"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// defaultClass is the annotation with the value "true" on the default StorageClass.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// classesFit reports whether a snapshot can be taken of a volume of the StorageClass, and says what is missing. This is looked at before
// the import, which would be of no use.
func (r *Reconciler) classesFit(ctx context.Context, l *look) (bool, error) {
	l.again = pause
	class, err := r.storageClass(ctx, l.Spec.StorageClass)
	switch {
	case err != nil:
		return false, err
	case class == nil && l.Spec.StorageClass == "":
		l.imported(metav1.ConditionFalse, v1alpha1.ReasonStorageClassNotFound, "spec.storageClass is not set, and the cluster has no default StorageClass")
		return false, nil
	case class == nil:
		l.imported(metav1.ConditionFalse, v1alpha1.ReasonStorageClassNotFound, fmt.Sprintf("spec.storageClass: StorageClass %s does not exist", l.Spec.StorageClass))
		return false, nil
	}
	var all snapshotv1.VolumeSnapshotClassList
	if err := r.Live.List(ctx, &all); err != nil {
		return false, fmt.Errorf("listing VolumeSnapshotClasses: %w", err)
	}
	named := l.Spec.SnapshotClass
	all.Items = slices.DeleteFunc(all.Items, func(c snapshotv1.VolumeSnapshotClass) bool { return named != "" && c.Name != named })
	text := ""
	switch {
	case named != "" && len(all.Items) == 0:
		text = fmt.Sprintf("spec.snapshotClass: VolumeSnapshotClass %s does not exist", named)
	case !slices.ContainsFunc(all.Items, func(c snapshotv1.VolumeSnapshotClass) bool { return c.Driver == class.Provisioner }):
		text = fmt.Sprintf("no VolumeSnapshotClass has the driver of StorageClass %s, which is %s", class.Name, class.Provisioner)
		if named != "" {
			text = fmt.Sprintf("spec.snapshotClass: VolumeSnapshotClass %s has driver %s, but StorageClass %s has %s", named, all.Items[0].Driver, class.Name, class.Provisioner)
		}
	default:
		return true, nil
	}
	l.imported(metav1.ConditionFalse, v1alpha1.ReasonSnapshotUnsupported, text)
	return false, nil
}

// storageClass returns the StorageClass of that name, or the default one, or nil if it does not exist.
func (r *Reconciler) storageClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if name != "" {
		class := &storagev1.StorageClass{}
		err := r.Live.Get(ctx, client.ObjectKey{Name: name}, class)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading StorageClass %s: %w", name, err)
		}
		return class, nil
	}
	var all storagev1.StorageClassList
	if err := r.Live.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing StorageClasses: %w", err)
	}
	var newest *storagev1.StorageClass // which is the default one if several are marked
	for i := range all.Items {
		class := &all.Items[i]
		if class.Annotations[defaultClass] == "true" && (newest == nil || newest.CreationTimestamp.Before(&class.CreationTimestamp)) {
			newest = class
		}
	}
	return newest, nil
}
