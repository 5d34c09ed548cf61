package diskimage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// view is an image as one pass has read it. It is modified in place and discarded after the first write.
type view struct {
	*v1alpha1.VMDiskImage
	read *v1alpha1.VMDiskImageStatus // the status as read
	now  time.Time

	// The objects of the image, of all attempts.
	volumes   []cdiv1.DataVolume
	claims    []corev1.PersistentVolumeClaim
	snapshots []snapshotv1.VolumeSnapshot
	// Set if the API server does not serve the kinds.
	noVolumes, noSnapshots bool

	failure  v1alpha1.ConditionReason // why the attempt failed in this pass
	deletion string                   // what the deletion waits for
	blockade *deletionBlock           // what blocks the deletion
	again    time.Duration            // when to requeue
}

// childName returns the name of the DataVolume, claim and snapshot of an attempt.
func childName(image types.UID, attempt int32) string {
	return fmt.Sprintf("vmdi-%s-%d", image, attempt)
}

// attemptOf returns the number of the attempt that created an object, or 0 if no attempt of the image did.
func attemptOf(image types.UID, child client.Object) int32 {
	number, err := strconv.ParseInt(child.GetLabels()[v1alpha1.LabelImportAttempt], 10, 32)
	if err != nil || number < 1 || child.GetLabels()[v1alpha1.LabelDiskImage] != string(image) || child.GetName() != childName(image, int32(number)) {
		return 0
	}
	return int32(number)
}

// observe lists the objects of the image. Of a ready image, only those of its attempt count, which are listed by name: the API server then
// reads one object, and not all claims of the namespace.
func (v *view) observe(ctx context.Context, live client.Reader) error {
	var volumes cdiv1.DataVolumeList
	var claims corev1.PersistentVolumeClaimList
	var snapshots snapshotv1.VolumeSnapshotList
	options := []client.ListOption{client.InNamespace(v.Namespace), client.MatchingLabels{v1alpha1.LabelDiskImage: string(v.UID)}}
	if a := v.Status.Attempt; a != nil && v.Status.Snapshot != nil && v.DeletionTimestamp.IsZero() {
		options = append(options, client.MatchingFields{metav1.ObjectNameField: childName(v.UID, a.Number)})
	}
	list := func(into client.ObjectList, what string) (unserved bool, err error) {
		err = live.List(ctx, into, options...)
		if isUnserved(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("listing the %s of VMDiskImage %s: %w", what, v.Name, err)
		}
		return false, nil
	}
	var err1, err2, err3 error
	v.noVolumes, err1 = list(&volumes, "DataVolumes")
	_, err2 = list(&claims, "PersistentVolumeClaims")
	v.noSnapshots, err3 = list(&snapshots, "VolumeSnapshots")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	v.volumes = slices.DeleteFunc(volumes.Items, func(o cdiv1.DataVolume) bool { return attemptOf(v.UID, &o) == 0 })
	v.claims = slices.DeleteFunc(claims.Items, func(o corev1.PersistentVolumeClaim) bool { return attemptOf(v.UID, &o) == 0 })
	v.snapshots = slices.DeleteFunc(snapshots.Items, func(o snapshotv1.VolumeSnapshot) bool { return attemptOf(v.UID, &o) == 0 })
	return nil
}

// isUnserved reports whether an error means that the API server does not serve a kind.
func isUnserved(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// of returns the object with the name of the current attempt, or nil.
func of[T any, P interface {
	*T
	client.Object
}](v *view, all []T) P {
	for i := range all {
		if o := P(&all[i]); v.Status.Attempt != nil && attemptOf(v.UID, o) == v.Status.Attempt.Number {
			return o
		}
	}
	return nil
}

// newest returns the number of the latest attempt that created an object, or 0.
func (v *view) newest() (newest int32) {
	for _, o := range v.children() {
		newest = max(newest, attemptOf(v.UID, o))
	}
	return newest
}

// children returns the objects of the image in the order in which they are deleted: a claim stays until its snapshots
// are gone, and CDI would recreate it while the DataVolume exists.
func (v *view) children() (all []client.Object) {
	for i := range v.snapshots {
		all = append(all, &v.snapshots[i])
	}
	for i := range v.volumes {
		all = append(all, &v.volumes[i])
	}
	for i := range v.claims {
		all = append(all, &v.claims[i])
	}
	return all
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *snapshotv1.VolumeSnapshot:
		return "VolumeSnapshot"
	case *cdiv1.DataVolume:
		return "DataVolume"
	}
	return "PersistentVolumeClaim"
}

func allAttempts(int32) bool { return true }

// remove deletes the objects of the selected attempts, one kind after the other, and reports whether none is left.
func (r *Reconciler) remove(ctx context.Context, v *view, which func(attempt int32) bool) (none bool, err error) {
	first, sent := "", false
	for _, o := range v.children() {
		switch kind := kindOf(o); {
		case !which(attemptOf(v.UID, o)), first != "" && first != kind:
			continue
		default:
			first = kind
		}
		if !o.GetDeletionTimestamp().IsZero() {
			v.setDeletionWait(o)
			continue
		}
		uid := o.GetUID()
		if err := r.Client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting %s %s: %w", first, o.GetName(), err)
		}
		sent = true
	}
	switch {
	case sent:
		v.again = time.Second
	case first != "":
		v.again = poll
	}
	return first == "", nil
}

// setDeletionWait reports what the deletion of the image waits for.
func (v *view) setDeletionWait(o client.Object) {
	text := fmt.Sprintf("waiting until %s %s is deleted; it has the finalizers %s", kindOf(o), o.GetName(), strings.Join(o.GetFinalizers(), ", "))
	if v.deletion = text; v.now.Sub(o.GetDeletionTimestamp().Time) >= slow && !v.DeletionTimestamp.IsZero() {
		v.blocks(v1alpha1.ReasonChildrenRemain, text)
	}
}
