package diskimage

import (
	"errors"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What public issues report of images elsewhere, and no other test has: docs/images-reports.md.

// CDI says that the import succeeded before the claim is bound to the volume: there is no snapshot until then, and the deadline holds.
func TestNoSnapshotBeforeTheClaimIsBound(t *testing.T) {
	rebinding := func() *world {
		w := newImage(t, nil)
		w.settle()
		w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded, Progress: "100.0%"})
		claim := w.claims()[0]
		claim.Status.Phase = corev1.ClaimPending
		w.must(w.Status().Update(t.Context(), &claim))
		w.settle()
		w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonImporting)
		if len(w.snapshots()) > 0 {
			t.Fatal("there is a snapshot of a claim that is not bound")
		}
		return w
	}
	w := rebinding()
	claim := w.claims()[0]
	claim.Status.Phase = corev1.ClaimBound
	w.must(w.Status().Update(t.Context(), &claim))
	w.settle()
	if len(w.snapshots()) != 1 {
		t.Error("there is no snapshot of the bound claim")
	}
	w = rebinding()
	w.later(2 * time.Hour)
	w.says("not complete within 2h0m0s: CDI reports phase Succeeded")
}

// An object that cannot be deleted keeps the image, which says why, and goes when it can be.
func TestDeletionOfAnObjectFails(t *testing.T) {
	for _, kind := range []string{"VolumeSnapshot", "DataVolume", "PersistentVolumeClaim"} {
		w := ready(t)
		w.must(w.Delete(t.Context(), w.image()))
		w.refused["delete "+kind] = errors.New("etcd has no leader")
		failed := 0
		for range 8 {
			if _, err := w.pass(); err != nil { // so that it is tried again, with a pause that grows
				failed++
			}
		}
		if failed < 3 {
			t.Errorf("%s: %d passes failed", kind, failed)
		}
		w.shows(v1alpha1.VMDiskImageTerminating, v1alpha1.ReasonTerminating)
		w.says("deleting " + kind)
		w.says("etcd has no leader")
		delete(w.refused, "delete "+kind)
		w.goes()
	}
}

// A snapshot that never becomes ready keeps its claim: it is deleted first.
func TestDeletionWithASnapshotThatFailed(t *testing.T) {
	w := newImage(t, nil)
	w.succeed()
	w.shoot(snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: new("the array is full")}})
	w.must(w.Delete(t.Context(), w.image()))
	w.refused["delete VolumeSnapshot"] = errors.New("etcd has no leader")
	for range 3 {
		_, _ = w.pass()
	}
	if !strings.Contains(w.names(), "claim") || len(w.volumes()) != 1 {
		t.Errorf("deleted before the snapshot: left %s", w.names())
	}
	delete(w.refused, "delete VolumeSnapshot")
	w.goes()
}

// Nobody tells that the last user went, because the event is lost, or came while no process ran: the image is looked at within a minute.
func TestLastUserGoesUnnoticed(t *testing.T) {
	w := ready(t)
	disk := w.disk(namespace, "data", nil)
	w.must(w.Delete(t.Context(), w.image()))
	w.heldBack("used by 1 disk")
	result, err := w.pass()
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("the image is looked at again after %v, %v", result.RequeueAfter, err)
	}
	w.must(w.Delete(t.Context(), disk))
	w.goes()
}
