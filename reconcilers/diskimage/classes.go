package diskimage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Annotations with the value "true" on a default StorageClass. If both exist, CDI prefers the one for virtual machines.
const (
	defaultVirtClass = "storageclass.kubevirt.io/is-default-virt-class"
	defaultClass     = "storageclass.kubernetes.io/is-default-class"
)

// defaultSnapshotClass is the annotation with the value "true" on a default VolumeSnapshotClass.
const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

// classesFit reports whether volumes of the StorageClass can be snapshotted, and reports what is missing. It is
// checked before the import, which would be useless otherwise.
func (r *Reconciler) classesFit(ctx context.Context, v *view) (bool, error) {
	v.again = pause
	_, reason, text, err := r.snapshotClass(ctx, v, v.Spec.StorageClass)
	if text != "" {
		v.imported(metav1.ConditionFalse, reason, text)
	}
	return text == "" && err == nil, err
}

// snapshotClass returns the VolumeSnapshotClass for a claim of that StorageClass, or why there is none. If
// spec.snapshotClass is empty, it is chosen here, because the snapshot controller waits for ever if no class of the
// driver is marked as default.
func (r *Reconciler) snapshotClass(ctx context.Context, v *view, storage string) (name string, reason v1alpha1.ConditionReason, missing string, err error) {
	class, err := r.storageClass(ctx, storage)
	switch {
	case err != nil:
		return "", "", "", err
	case class == nil && storage == "":
		return "", v1alpha1.ReasonStorageClassNotFound, "spec.storageClass is not set, and the cluster has no default StorageClass", nil
	case class == nil:
		return "", v1alpha1.ReasonStorageClassNotFound, fmt.Sprintf("spec.storageClass: StorageClass %s does not exist", storage), nil
	}
	var all snapshotv1.VolumeSnapshotClassList
	if err := r.Live.List(ctx, &all); err != nil {
		return "", "", "", fmt.Errorf("listing VolumeSnapshotClasses: %w", err)
	}
	var fitting, marked []string
	driver := "" // of spec.snapshotClass
	for _, c := range all.Items {
		if c.Name == v.Spec.SnapshotClass {
			driver = c.Driver
		}
		if c.Driver == class.Provisioner && (v.Spec.SnapshotClass == "" || c.Name == v.Spec.SnapshotClass) {
			fitting = append(fitting, c.Name)
			if c.Annotations[defaultSnapshotClass] == "true" {
				marked = append(marked, c.Name)
			}
		}
	}
	switch {
	case len(marked) == 1:
		return marked[0], "", "", nil
	case len(fitting) == 1:
		return fitting[0], "", "", nil
	case len(fitting) > 1:
		missing = fmt.Sprintf("spec.snapshotClass is not set, and of the VolumeSnapshotClasses of driver %s, %d are marked as the default: mark one of %s",
			class.Provisioner, len(marked), v1alpha1.Cut(strings.Join(fitting, ", "), 1024))
	case v.Spec.SnapshotClass == "":
		missing = fmt.Sprintf("no VolumeSnapshotClass has the driver of StorageClass %s, which is %s", class.Name, class.Provisioner)
	case driver == "":
		missing = fmt.Sprintf("spec.snapshotClass: VolumeSnapshotClass %s does not exist", v.Spec.SnapshotClass)
	default:
		missing = fmt.Sprintf("spec.snapshotClass: VolumeSnapshotClass %s has driver %s, but StorageClass %s has %s", v.Spec.SnapshotClass, driver, class.Name, class.Provisioner)
	}
	return "", v1alpha1.ReasonSnapshotUnsupported, missing, nil
}

// storageClass returns the StorageClass of that name, or the default one that CDI chooses, or nil if it does not exist.
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
	slices.SortFunc(all.Items, func(a, b storagev1.StorageClass) int { // of several defaults, the newest is used
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, annotation := range []string{defaultVirtClass, defaultClass} {
		i := slices.IndexFunc(all.Items, func(class storagev1.StorageClass) bool { return class.Annotations[annotation] == "true" })
		if i >= 0 {
			return &all.Items[i], nil
		}
	}
	return nil, nil
}
