package diskimage

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// If the content of its snapshot is deleted, the snapshot controller takes the snapshot again. Until then, nothing is copied from it.
func TestSnapshotIsTakenAgain(t *testing.T) {
	w := ready(t)
	size := w.image().Status.VirtualSize
	w.told()
	w.shoot(snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(false), Error: &snapshotv1.VolumeSnapshotError{Message: new("VolumeSnapshotContent is missing")}})
	w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonSnapshotFailed)
	w.says("VolumeSnapshotContent is missing; if it does not become ready again")
	if reason, _ := w.image().Unusable(); reason != v1alpha1.ReasonImageImporting || w.image().Status.UnreferencedSince != nil {
		t.Errorf("the image is %+v", w.image().Status)
	}
	w.later(24 * time.Hour)
	w.shoot(usableSnapshot)
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	if got := w.image().Status; got.VirtualSize.Cmp(*size) != 0 || got.Attempt.Number != 1 || len(w.told()) != 1 {
		t.Errorf("the image is %+v", got)
	}
}

// The import waits only if volumes of the class that CDI chooses cannot be snapshotted.
func TestDefaultStorageClassIsThatOfCDI(t *testing.T) {
	for what, tc := range map[string]struct {
		virt, plain []string // the drivers of the StorageClasses that are marked, each newer than the one before
		fits        bool
	}{
		"only for virtual machines":            {[]string{driver}, nil, true},
		"for virtual machines, and another":    {[]string{driver}, []string{"nfs.example.org"}, true},
		"without snapshots, and another":       {[]string{"nfs.example.org"}, []string{driver}, false},
		"several, the newest with snapshots":   {nil, []string{"nfs.example.org", driver}, true},
		"several, the newest without them":     {nil, []string{driver, "nfs.example.org"}, false},
		"several, for virtual machines":        {[]string{"nfs.example.org", driver}, []string{"nfs.example.org"}, true},
		"several, for virtual machines, other": {[]string{driver, "nfs.example.org"}, []string{driver}, false},
	} {
		w := newImage(t, nil)
		w.must(w.Delete(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}))
		for annotation, drivers := range map[string][]string{defaultVirtClass: tc.virt, defaultClass: tc.plain} {
			for i, of := range drivers {
				w.make(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("%d-%s", len(annotation), of), Annotations: map[string]string{annotation: "true"},
					CreationTimestamp: metav1.NewTime(w.now.Add(time.Duration(i) * time.Hour)),
				}, Provisioner: of})
			}
		}
		w.settle()
		if got := w.names() != ""; got != tc.fits {
			t.Errorf("%s: the import has begun: %t, condition %+v", what, got, v1alpha1.ConditionReady.In(w.image().Status.Conditions))
		}
	}
}

// pendingClaim is an image whose claim is not bound.
func pendingClaim(t *testing.T) (w *world, claim corev1.PersistentVolumeClaim) {
	t.Helper()
	w = newImage(t, nil)
	w.settle()
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Pending})
	claim = w.claims()[0]
	claim.Status.Phase = corev1.ClaimPending
	w.must(w.Status().Update(t.Context(), &claim))
	return w, claim
}

// CDI reports only in an event that its second claim would exceed a quota.
func TestQuotaIsReported(t *testing.T) {
	w, claim := pendingClaim(t)
	event := func(name, kind string, age time.Duration, of types.UID, message string) {
		w.make(&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind, Reason: "ErrCreatingPVCPrime", Message: message,
			InvolvedObject: corev1.ObjectReference{UID: of}, LastTimestamp: metav1.NewTime(w.now.Add(-age)),
		})
	}
	event("first", corev1.EventTypeWarning, time.Hour, claim.UID, "earlier")
	event("second", corev1.EventTypeWarning, time.Minute, claim.UID, "exceeded quota: https://me:word@example.org")
	event("third", corev1.EventTypeNormal, 0, claim.UID, "normal")
	event("fourth", corev1.EventTypeWarning, 0, "another", "another")
	w.emptyPages = 3 // each page has only a few events
	w.settle()
	w.says("PersistentVolumeClaim: ErrCreatingPVCPrime exceeded quota: https://example.org")
	w.later(3 * time.Hour)
	w.says("ErrCreatingPVCPrime exceeded quota")
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonImportDeadlineExceeded)
}

// CDI says only in an event of the DataVolume why it creates no claim (kubevirt/containerized-data-importer#735).
func TestNoAccessModeIsReported(t *testing.T) {
	w := newImage(t, nil)
	w.settle()
	w.make(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first"}, Type: corev1.EventTypeWarning, Reason: "ErrClaimNotValid",
		Message: "no accessMode specified in StorageProfile local", InvolvedObject: corev1.ObjectReference{UID: w.volumes()[0].UID},
	})
	w.settle()
	w.says("DataVolume: ErrClaimNotValid no accessMode specified in StorageProfile local")
}

// An attempt goes on, and ends in time, while the events of its claim cannot be read. Anybody who can create events can create any number of
// them: only the first pages are read.
func TestEventsCannotBeRead(t *testing.T) {
	for what, happens := range map[string]func(*world){
		"they are not served": func(w *world) { w.refused["list Event"] = errors.New("events are not served") },
		"they have no end":    func(w *world) { w.emptyPages = math.MaxInt },
	} {
		t.Run(what, func(t *testing.T) {
			w, _ := pendingClaim(t)
			happens(w)
			w.later(3 * time.Hour)
			w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonImportDeadlineExceeded)
		})
	}
}

// A DataVolume that another client creates in place of the deleted one is not followed, even if it looks the same.
func TestDataVolumeIsReplaced(t *testing.T) {
	w := newImage(t, nil)
	w.settle()
	again := w.volumes()[0].DeepCopy()
	w.must(w.Delete(t.Context(), &w.volumes()[0]))
	again.ResourceVersion = ""
	w.make(again)
	w.settle()
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonImportFailed)
	w.says("the DataVolume was deleted")
	if w.names() != "" {
		t.Errorf("there is %s", w.names())
	}
}
