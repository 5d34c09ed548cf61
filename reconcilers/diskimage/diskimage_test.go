package diskimage

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestImport(t *testing.T) {
	w := newImage(t, func(i *v1alpha1.VMDiskImage) {
		i.Spec.SecretRef = &v1alpha1.VMDiskImageSecretReference{Name: "images"}
		i.Spec.StorageClass, i.Spec.SnapshotClass = "fast", "snap"
	})
	w.secretHosts = []string{"images.example.org"}
	w.settle()
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonImporting)
	name := childName(w.image().UID, 1)
	volume := w.volumes()[0]
	if volume.Name != name || volume.Annotations[bindImmediately] == "" || len(volume.OwnerReferences) != 0 {
		t.Errorf("the DataVolume is %+v", volume.ObjectMeta)
	}
	want := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "https://images.example.org/ubuntu.qcow2", SecretRef: "images", Checksum: sum}}
	if diff := cmp.Diff(want, volume.Spec.Source); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if size := volume.Spec.Storage.Resources.Requests[corev1.ResourceStorage]; size.String() != "20Gi" || *volume.Spec.Storage.StorageClassName != "fast" {
		t.Errorf("storage %+v", volume.Spec.Storage)
	}
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress, Progress: "45.12%"})
	w.settle()
	w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonImporting)
	if got := w.image().Status.Attempt.Progress; got != "45.12%" {
		t.Errorf("progress %s", got)
	}
	w.succeed()
	w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonSnapshotPending)
	snapshot := w.snapshots()[0]
	if *snapshot.Spec.Source.PersistentVolumeClaimName != name || *snapshot.Spec.VolumeSnapshotClassName != "snap" {
		t.Errorf("the snapshot is %+v", snapshot.Spec)
	}
	w.shoot(snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(false), RestoreSize: new(resource.MustParse("20Gi"))})
	w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonSnapshotPending)
	w.shoot(usableSnapshot)
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	status := w.image().Status
	if status.VirtualSize.String() != "20Gi" || status.Attempt.Progress != "100.0%" || status.Claim.UID != w.claims()[0].UID || status.Snapshot.UID != snapshot.UID {
		t.Errorf("status %+v", status)
	}
	if told := w.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Normal ImageReady") {
		t.Errorf("events %q", told)
	}
	writes := w.writes
	for range 5 {
		w.later(time.Hour)
	}
	if w.writes != writes {
		t.Errorf("%d writes at rest", w.writes-writes)
	}
}

// The source of each type is what CDI calls it.
func TestSources(t *testing.T) {
	digest := "docker://registry.example.org/ubuntu@sha256:" + strings.Repeat("a", 64)
	for kind, tc := range map[v1alpha1.VMDiskImageSourceType]struct {
		url  string
		want cdiv1.DataVolumeSource
	}{
		v1alpha1.VMDiskImageS3:       {"https://s3.example.org/b/k", cdiv1.DataVolumeSource{S3: &cdiv1.DataVolumeSourceS3{URL: "https://s3.example.org/b/k", SecretRef: "images"}}},
		v1alpha1.VMDiskImageRegistry: {digest, cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: &digest, SecretRef: new("images")}}},
	} {
		w := newImage(t, func(i *v1alpha1.VMDiskImage) {
			i.Spec.SourceType, i.Spec.URL, i.Spec.Checksum = kind, tc.url, ""
			i.Spec.SecretRef = &v1alpha1.VMDiskImageSecretReference{Name: "images"}
		})
		w.secretHosts = []string{"*"}
		w.settle()
		if diff := cmp.Diff(&tc.want, w.volumes()[0].Spec.Source); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		w.succeed() // it is taken for its own
	}
}

// dying tells the same of an image again and again, whose process dies at one call after another, with -short at each fourth, before the call
// or just after. begin is what happens before it can die; pass has another process go on if it died.
func dying(t *testing.T, begin func() *world, tell func(w *world, pass func(times int), at string)) {
	t.Helper()
	step := 1
	if testing.Short() {
		step = 4
	}
	for _, after := range []bool{false, true} {
		for call := 1; ; call += step {
			w, died := begin(), false
			w.Begin()
			w.Die(call, after)
			pass := func(times int) {
				for range times {
					_, err := w.pass()
					died = died || err != nil
				}
			}
			tell(w, pass, fmt.Sprintf("death at call %d, %v", call, after))
			if !died {
				break
			}
		}
	}
}

// A process that dies at any of its calls leaves nothing behind and imports nothing twice.
func TestDeathAtEveryCall(t *testing.T) {
	dying(t, func() *world { return newImage(t, nil) }, func(w *world, pass func(int), at string) {
		pass(12)
		w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded})
		pass(12)
		w.shoot(usableSnapshot)
		pass(12)
		w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
		want := []string{"DataVolume vmdi-uid-3-1", "PersistentVolumeClaim vmdi-uid-3-1", "VolumeSnapshot vmdi-uid-3-1"}
		if diff := cmp.Diff(want, w.created); diff != "" {
			t.Fatalf("%s: created (-want +got):\n%s", at, diff)
		}
		w.must(w.Delete(t.Context(), w.image()))
		pass(12)
		if w.image() != nil || w.names() != "" {
			t.Fatalf("%s: left %s", at, w.names())
		}
	})
}

// A process that dies at any of the calls of a failed import neither loses the failure nor counts it twice.
func TestDeathDuringAFailure(t *testing.T) {
	failed := func() *world {
		w := newImage(t, nil)
		w.settle()
		w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed})
		return w
	}
	dying(t, failed, func(w *world, pass func(int), at string) {
		pass(12)
		w.now = w.now.Add(firstPause)
		pass(12)
		w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonImporting)
		if a := w.image().Status.Attempt; a.Number != 2 || a.RetriesUsed != 1 || w.names() != "DataVolume vmdi-uid-3-2" {
			t.Fatalf("%s: attempt %+v, %s", at, a, w.names())
		}
	})
}

func TestAttemptsFail(t *testing.T) {
	progress := func(percent string) cdiv1.DataVolumeStatus {
		return cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress, Progress: cdiv1.DataVolumeProgress(percent)}
	}
	for what, tc := range map[string]struct {
		happens func(*world)
		reason  v1alpha1.ConditionReason
		text    string
		last    bool
	}{
		"CDI gives up": {func(w *world) { w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed}) }, v1alpha1.ReasonImportFailed, "CDI reports phase Failed", false},
		"the checksum is wrong": {func(w *world) {
			w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed, Conditions: []cdiv1.DataVolumeCondition{{
				Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: checksumError, Message: "checksum mismatch: want a, got b",
			}}})
		}, v1alpha1.ReasonChecksumMismatch, "checksum mismatch: want a, got b", true},
		"nothing ever happens": {func(w *world) { w.now = w.now.Add(2 * time.Hour) }, v1alpha1.ReasonImportDeadlineExceeded, "not complete within 2h", false},
		"it is slow": {func(w *world) {
			for i := range 120 {
				w.cdi(progress(fmt.Sprintf("%d.1%%", i/2)))
				w.now = w.now.Add(time.Minute)
				w.settle()
			}
		}, v1alpha1.ReasonImportDeadlineExceeded, "not complete within 2h", false},
		"it stalls": {func(w *world) {
			w.cdi(progress("12.34%"))
			w.later(time.Second)
			w.later(14 * time.Minute)
			w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonImporting)
			w.now = w.now.Add(time.Minute)
		}, v1alpha1.ReasonImportStalled, "no progress for 15m", false},
		"its Pod is evicted": {func(w *world) {
			w.cdi(progress("N/A"))
			w.later(time.Second)
			w.now = w.now.Add(15 * time.Minute)
		}, v1alpha1.ReasonImportStalled, "no progress for 15m", false},
		"its importer restarts again and again": {func(w *world) {
			status := progress("1%")
			status.RestartCount = 5
			w.cdi(status)
			w.settle()
			w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonImporting)
			status.RestartCount = 6
			w.cdi(status)
		}, v1alpha1.ReasonRetryLimitExceeded, "(ImportFailed)", true},
		"its importer fails, and runs again when that is read": {func(w *world) {
			status := progress("1%")
			status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error", Message: "got 503"}}
			w.cdi(status)
			w.settle()
			status.RestartCount = 6
			status.Conditions[0] = cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionTrue, Reason: "Pod is running"}
			w.cdi(status)
		}, v1alpha1.ReasonRetryLimitExceeded, "last error: got 503", true},
		"its Pod fails": {func(w *world) {
			w.cdi(progress("1%"))
			claim := w.claims()[0]
			claim.Annotations["cdi.kubevirt.io/storage.pod.phase"] = "Failed"
			w.must(w.Update(w.Context(), &claim))
		}, v1alpha1.ReasonImportFailed, "the importer's Pod failed", false},
		"its Pod cannot be created at once": {func(w *world) {
			w.cdi(progress("1%"))
			claim := w.claims()[0]
			claim.Annotations["cdi.kubevirt.io/storage.pod.phase"] = "Failed"
			claim.Annotations["cdi.kubevirt.io/storage.condition.running.reason"] = "ErrStartingPod"
			w.must(w.Update(w.Context(), &claim))
			w.later(time.Second)
			w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonImporting)
			w.now = w.now.Add(15 * time.Minute)
		}, v1alpha1.ReasonImportStalled, "no progress for 15m", false},
		"somebody writes a huge number of restarts": {func(w *world) {
			status := progress("1%")
			status.RestartCount = math.MaxInt32
			w.cdi(status)
		}, v1alpha1.ReasonRetryLimitExceeded, "(ImportFailed)", true},
		"the DataVolume is deleted": {func(w *world) {
			w.must(w.Delete(w.Context(), &w.volumes()[0]))
		}, v1alpha1.ReasonImportFailed, "the DataVolume was deleted", false},
		"the claim is deleted before there is a snapshot": {func(w *world) {
			w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded})
			w.settle()
			w.must(w.Delete(w.Context(), &w.claims()[0]))
		}, v1alpha1.ReasonImportFailed, "the claim was deleted", false},
		"the snapshot fails": {func(w *world) {
			w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded})
			w.settle()
			w.shoot(snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: new("no space on pool 7")}})
			w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonSnapshotFailed)
			w.says("no space on pool 7")
			w.now = w.now.Add(2 * time.Hour)
		}, v1alpha1.ReasonSnapshotFailed, "no space on pool 7", false},
	} {
		t.Run(what, func(t *testing.T) {
			w := newImage(t, nil)
			w.settle()
			tc.happens(w)
			w.settle()
			w.garbage()
			w.settle()
			phase := v1alpha1.VMDiskImagePending
			if tc.last {
				phase = v1alpha1.VMDiskImageFailed
			}
			w.shows(phase, tc.reason)
			w.says(tc.text)
			if w.names() != "" {
				t.Errorf("left: %s", w.names())
			}
			if told := w.told(); len(told) == 0 || !strings.HasPrefix(told[len(told)-1], "Warning "+string(tc.reason)) {
				t.Errorf("events %q", told)
			}
			w.later(2 * time.Minute)
			if attempts := w.image().Status.Attempt.Number; attempts != map[bool]int32{false: 2, true: 1}[tc.last] {
				t.Errorf("attempt %d", attempts)
			}
		})
	}
}

// An importer that runs, but whose progress cannot be read, is not stalled, nor is one whose progress is less than a percent in that time.
func TestNotStalled(t *testing.T) {
	running := []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionTrue}}
	for what, progress := range map[string]func(minute int) string{
		"not readable": func(int) string { return "N/A" },
		"slow":         func(minute int) string { return fmt.Sprintf("10.%02d%%", minute) },
	} {
		w := newImage(t, nil)
		w.settle()
		for minute := range 90 {
			w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress, Progress: cdiv1.DataVolumeProgress(progress(minute)), Conditions: running})
			w.later(time.Minute)
			if phase := w.image().Status.Phase; phase != v1alpha1.VMDiskImageImporting {
				t.Fatalf("%s: phase %s after %d minutes", what, phase, minute)
			}
		}
	}
}

// Attempts follow each other with growing pauses, until the limit. Then an annotation begins anew.
func TestRetries(t *testing.T) {
	w := newImage(t, nil)
	var pauses []time.Duration
	for range 6 {
		w.settle()
		w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed})
		w.settle()
		if at := w.image().Status.Attempt.RetryAt; at != nil {
			pauses = append(pauses, at.Sub(w.now))
			w.later(at.Sub(w.now) - 2*time.Second)
			if w.names() != "" {
				t.Fatalf("before its time there is %s", w.names())
			}
			w.later(2 * time.Second)
		}
	}
	if diff := cmp.Diff([]time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute}, pauses); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	w.shows(v1alpha1.VMDiskImageFailed, v1alpha1.ReasonRetryLimitExceeded)
	w.says("to import again: kubectl annotate --overwrite vmdiskimages/ubuntu -n farm sallyport.dev/retry-import=7")
	w.later(24 * time.Hour)
	for value, attempt := range map[string]int32{"6": 6, "now": 6} {
		w.annotate(value)
		if got := w.image().Status.Attempt.Number; got != attempt {
			t.Errorf("%s begins attempt %d", value, got)
		}
	}
	w.annotate("7")
	w.succeed()
	w.shoot(usableSnapshot)
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	if a := w.image().Status.Attempt; a.Number != 7 || a.RetriesUsed != 0 {
		t.Errorf("attempt %+v", a)
	}
}

func (w *world) annotate(value string) {
	w.Helper()
	image := w.image()
	image.Annotations = map[string]string{v1alpha1.AnnotationRetryImport: value}
	w.must(w.Update(w.Context(), image))
	w.settle()
}

// An older CDI drops the checksum without a word. Nothing is imported then.
func TestChecksumThatCDIDoesNotKnow(t *testing.T) {
	w := newImage(t, nil)
	w.prunes = true
	w.settle()
	w.shows(v1alpha1.VMDiskImageFailed, v1alpha1.ReasonChecksumNotSupported)
	if w.names() != "" {
		t.Errorf("left: %s", w.names())
	}
}

// What was lost under an image that was ready is said, and never imported again.
func TestLost(t *testing.T) {
	for what, lose := range map[string]func(*world){
		"the snapshot": func(w *world) { w.must(w.Delete(w.Context(), &w.snapshots()[0])) },
		"the claim":    func(w *world) { w.must(w.Delete(w.Context(), &w.claims()[0])) },
	} {
		w := ready(t)
		w.created = nil
		lose(w)
		w.settle()
		w.shows(v1alpha1.VMDiskImageLost, v1alpha1.ReasonImageLost)
		w.annotate("2")
		w.later(24 * time.Hour)
		w.shows(v1alpha1.VMDiskImageLost, v1alpha1.ReasonImageLost)
		if len(w.created) > 0 {
			t.Errorf("%s: created %v", what, w.created)
		}
	}
}

// The image needs the DataVolume no more, and what it cannot see is not lost.
func TestStaysReady(t *testing.T) {
	w := ready(t)
	w.must(w.Delete(t.Context(), &w.volumes()[0]))
	w.unserved["DataVolume"] = true
	w.settle()
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	w.refused["list VolumeSnapshot"] = apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	if _, err := w.pass(); !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	delete(w.refused, "list VolumeSnapshot")
	w.unserved["VolumeSnapshot"] = true
	w.settle()
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonSnapshotsNotServed)
	w.unserved["VolumeSnapshot"] = false
	w.settle()
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
}

// Without the kinds, or fitting classes, or the value of the chart, nothing is imported, and the import starts when they come.
func TestWaitsFor(t *testing.T) {
	for what, tc := range map[string]struct {
		lacks, comes func(*world)
		reason       v1alpha1.ConditionReason
	}{
		"CDI": {
			func(w *world) { w.unserved["DataVolume"] = true }, func(w *world) { w.unserved["DataVolume"] = false }, v1alpha1.ReasonImportsNotServed,
		},
		"snapshots": {
			func(w *world) { w.unserved["VolumeSnapshot"] = true }, func(w *world) { w.unserved["VolumeSnapshot"] = false }, v1alpha1.ReasonSnapshotsNotServed,
		},
		"the value of the chart": {
			func(w *world) { w.disabled = true }, func(w *world) { w.disabled = false }, v1alpha1.ReasonImportsDisabled,
		},
		"a default StorageClass": {
			func(w *world) {
				w.must(w.Delete(w.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}))
			},
			func(w *world) {
				w.make(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{defaultClass: "true"}}, Provisioner: driver})
			}, v1alpha1.ReasonStorageClassNotFound,
		},
		"a snapshot class of the driver": {
			func(w *world) {
				w.must(w.Delete(w.Context(), &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "snap"}}))
				w.make(&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Driver: "other.example.org"})
			},
			func(w *world) {
				w.make(&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "snap"}, Driver: driver})
			},
			v1alpha1.ReasonSnapshotUnsupported,
		},
		"rights": {
			func(w *world) { w.refused["list DataVolume"] = apierrors.NewForbidden(schema.GroupResource{}, "", nil) },
			func(w *world) { delete(w.refused, "list DataVolume") }, v1alpha1.ReasonPermissionDenied,
		},
		"the right to create": {
			func(w *world) {
				w.refused["create DataVolume"] = apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			},
			func(w *world) { delete(w.refused, "create DataVolume") }, v1alpha1.ReasonImportRejected,
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newImage(t, nil)
			tc.lacks(w)
			for range 3 {
				_, _ = w.pass()
			}
			w.shows(v1alpha1.VMDiskImagePending, tc.reason)
			if len(w.told()) != 1 {
				t.Error("there is not one event")
			}
			w.now = w.now.Add(time.Minute)
			tc.comes(w)
			w.succeed()
			w.shoot(usableSnapshot)
			w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
		})
	}
}

func TestClassesThatAreNamed(t *testing.T) {
	for what, tc := range map[string]struct {
		storage, snapshot, text string
		reason                  v1alpha1.ConditionReason
	}{
		"no such StorageClass":        {"none", "", "spec.storageClass: StorageClass none does not exist", v1alpha1.ReasonStorageClassNotFound},
		"no such VolumeSnapshotClass": {"", "none", "spec.snapshotClass: VolumeSnapshotClass none does not exist", v1alpha1.ReasonSnapshotUnsupported},
		"of another driver":           {"fast", "other", "VolumeSnapshotClass other has driver other.example.org, but StorageClass fast has csi.example.org", v1alpha1.ReasonSnapshotUnsupported},
		"without snapshots":           {"slow", "", "no VolumeSnapshotClass has the driver of StorageClass slow, which is nfs.example.org", v1alpha1.ReasonSnapshotUnsupported},
	} {
		w := newImage(t, func(i *v1alpha1.VMDiskImage) { i.Spec.StorageClass, i.Spec.SnapshotClass = tc.storage, tc.snapshot })
		w.make(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "nfs.example.org"})
		w.make(&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Driver: "other.example.org"})
		w.settle()
		w.shows(v1alpha1.VMDiskImagePending, tc.reason)
		w.says(tc.text)
		if w.names() != "" {
			t.Errorf("%s: there is %s", what, w.names())
		}
	}
}

// The snapshot controller chooses a class only if one of the driver is marked as the default.
func TestSnapshotClassIsChosen(t *testing.T) {
	for what, tc := range map[string]struct {
		named     string
		marked    []string
		unmarked  []string
		otherwise string // if there is none
		want      string
	}{
		"the only one":                   {unmarked: []string{"snap"}, want: "snap"},
		"the default":                    {unmarked: []string{"snap"}, marked: []string{"best"}, want: "best"},
		"the one that is named":          {unmarked: []string{"snap"}, marked: []string{"best"}, named: "snap", want: "snap"},
		"none of several":                {unmarked: []string{"snap", "snip"}, otherwise: "0 are marked as the default: mark one of snap, snip"},
		"none of several that are meant": {marked: []string{"snap", "snip"}, otherwise: "2 are marked as the default: mark one of snap, snip"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newImage(t, func(i *v1alpha1.VMDiskImage) { i.Spec.SnapshotClass = tc.named })
			w.must(w.Delete(t.Context(), &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "snap"}}))
			for i, names := range [][]string{tc.unmarked, tc.marked} {
				for _, name := range names {
					w.make(&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{defaultSnapshotClass: fmt.Sprint(i == 1)}}, Driver: driver})
				}
			}
			if tc.want == "" {
				w.settle()
				w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonSnapshotUnsupported)
				w.says(tc.otherwise)
				return
			}
			w.succeed()
			if got := *w.snapshots()[0].Spec.VolumeSnapshotClassName; got != tc.want {
				t.Errorf("the class of the snapshot is %s, not %s", got, tc.want)
			}
		})
	}
}

// What an importer says can have the URL that a source redirected it to.
func TestNoCredentialsInMessages(t *testing.T) {
	w := newImage(t, func(i *v1alpha1.VMDiskImage) { i.Spec.Import.RetryLimit = new(int32) })
	w.settle()
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed, Conditions: []cdiv1.DataVolumeCondition{{
		Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error",
		Message: `Get "https://me:word@s3.example.org/images/a.img?X-Amz-Signature=feed&x=y": EOF (docker://you:word@example.org)`,
	}}})
	w.settle()
	w.says(`Get "https://s3.example.org/images/a.img": EOF (docker://example.org)`)
	for _, hidden := range []string{"word", "feed", "X-Amz"} {
		if text := fmt.Sprint(w.image().Status); strings.Contains(text, hidden) {
			t.Errorf("%s is in %s", hidden, text)
		}
	}
}

// What only has the name, or only the labels, or another source, is not taken for a part of the image, nor deleted with it.
func TestNothingForeignIsAdopted(t *testing.T) {
	of := func(w *world, name string, attempt int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			v1alpha1.LabelDiskImage: string(w.image().UID), v1alpha1.LabelImportAttempt: fmt.Sprint(attempt),
		}}
	}
	another := cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "https://evil.example/", Checksum: sum}}}
	w := newImage(t, nil)
	w.make(&corev1.PersistentVolumeClaim{ObjectMeta: of(w, "precious", 1)})
	w.make(&cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: childName(w.image().UID, 1)}, Spec: another})
	w.settle()
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonOwnedByAnother)
	w.must(w.Delete(t.Context(), &w.volumes()[0]))
	w.make(&cdiv1.DataVolume{ObjectMeta: of(w, childName(w.image().UID, 1), 1), Spec: another})
	w.settle()
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonOwnedByAnother)
	w.must(w.Delete(t.Context(), &w.volumes()[0]))
	w.make(&snapshotv1.VolumeSnapshot{ObjectMeta: of(w, childName(w.image().UID, 1), 1), Spec: snapshotv1.VolumeSnapshotSpec{
		Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("precious")},
	}})
	w.settle()
	claim := w.claims()[0]
	w.must(w.Delete(t.Context(), &claim))
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded})
	w.make(&corev1.PersistentVolumeClaim{ObjectMeta: of(w, "precious", 1)})
	w.settle()
	w.shoot(usableSnapshot)
	w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonOwnedByAnother)
	w.must(w.Delete(t.Context(), &w.snapshots()[0]))
	w.settle()
	w.shoot(usableSnapshot)
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	w.must(w.Delete(t.Context(), w.image()))
	w.settle()
	for range 5 {
		_, _ = w.pass()
	}
	if w.image() != nil || w.names() != "claim precious" {
		t.Errorf("left: %s", w.names())
	}
}

// A status that is lost, as after a restore in place, does not have the data imported again, or a retry counted as the first attempt.
func TestStatusIsLost(t *testing.T) {
	w := newImage(t, nil)
	w.settle()
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed})
	w.settle()
	w.later(time.Minute)
	w.succeed()
	w.shoot(usableSnapshot)
	image := w.image()
	image.Status = v1alpha1.VMDiskImageStatus{}
	w.must(w.Status().Update(t.Context(), image))
	w.created = nil
	w.settle()
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	if a := w.image().Status.Attempt; a.Number != 2 || len(w.created) > 0 {
		t.Errorf("attempt %+v, created %v", a, w.created)
	}
}

// What a former leader made of an attempt that is over is deleted.
func TestFormerLeader(t *testing.T) {
	w := newImage(t, nil)
	w.settle()
	former := w.volumes()[0]
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed})
	w.settle()
	w.later(time.Minute)
	former.ResourceVersion, former.UID = "", ""
	w.make(&former)
	w.settle()
	if names := w.names(); names != "DataVolume "+childName(w.image().UID, 2) {
		t.Errorf("there is %s", names)
	}
	w.succeed()
}

// A deletion at any time takes away what there is, the snapshot first, and says what it waits for.
func TestDeletion(t *testing.T) {
	for what, w := range map[string]*world{
		"at once":           newImage(t, nil),
		"with a DataVolume": func() *world { w := newImage(t, nil); w.settle(); return w }(),
		"with a snapshot":   func() *world { w := newImage(t, nil); w.succeed(); return w }(),
		"ready":             ready(t),
		"lost":              func() *world { w := ready(t); w.must(w.Delete(t.Context(), &w.claims()[0])); w.settle(); return w }(),
		"without CDI, ready": func() *world {
			w := ready(t)
			w.must(w.Delete(t.Context(), &w.volumes()[0]))
			w.unserved["DataVolume"] = true
			return w
		}(),
		"without CDI, at once": func() *world { w := newImage(t, nil); w.unserved["DataVolume"] = true; w.settle(); return w }(),
	} {
		_, _ = w.pass() // the finalizer
		w.must(w.Delete(t.Context(), w.image()))
		for range 5 {
			_, _ = w.pass()
		}
		w.unserved["DataVolume"] = false
		if w.image() != nil || w.names() != "" {
			t.Errorf("%s: left %s", what, w.names())
		}
	}
	w := ready(t)
	snapshot := w.snapshots()[0]
	snapshot.Finalizers = []string{"example.org/as-source"}
	w.must(w.Update(t.Context(), &snapshot))
	w.must(w.Delete(t.Context(), w.image()))
	w.settle()
	w.settle()
	w.shows(v1alpha1.VMDiskImageTerminating, v1alpha1.ReasonTerminating)
	w.says("waiting until VolumeSnapshot " + snapshot.Name + " is deleted; it has the finalizers example.org/as-source")
	if len(w.claims()) != 1 || len(w.volumes()) != 1 {
		t.Errorf("the snapshot is not deleted first: %s", w.names())
	}
	snapshot = w.snapshots()[0]
	snapshot.Finalizers = nil
	w.must(w.Update(t.Context(), &snapshot))
	for range 5 {
		_, _ = w.pass()
	}
	if w.image() != nil || w.names() != "" {
		t.Errorf("left %s", w.names())
	}
}

// Where images are not imported, one of which something is left waits, and says why; any other goes.
func TestDeletionWhereDisabled(t *testing.T) {
	w := newImage(t, nil)
	w.disabled = true
	w.settle()
	w.must(w.Delete(t.Context(), w.image()))
	w.settle()
	if w.image() != nil {
		t.Error("it is still there")
	}
	w = ready(t)
	w.disabled = true
	w.settle()
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	w.must(w.Delete(t.Context(), w.image()))
	w.settle()
	w.shows(v1alpha1.VMDiskImageTerminating, v1alpha1.ReasonTerminating)
	w.says("diskImages.enabled=true")
}

// A read-only process imports and deletes nothing, and what is pending goes on in the next one that is not.
func TestReadOnlyImages(t *testing.T) {
	w := newImage(t, nil)
	w.readOnly = true
	w.settle()
	w.says("Sallyport is read-only")
	if w.image().Status.Attempt != nil {
		t.Error("an import was begun")
	}
	w.readOnly = false
	w.settle()
	if w.image().Status.Attempt == nil {
		t.Error("no import was begun after read-only")
	}
	w = ready(t)
	w.readOnly = true
	w.settle()
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	w.must(w.Delete(t.Context(), w.image()))
	w.settle()
	w.shows(v1alpha1.VMDiskImageTerminating, v1alpha1.ReasonTerminating)
	w.says("Sallyport is read-only")
	w.readOnly = false
	w.settle()
	if w.image() != nil {
		t.Error("it is not deleted after read-only")
	}
}

// Only what has the labels and the name is of an attempt.
func TestAttemptOf(t *testing.T) {
	meta := func(name, uid, attempt string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelDiskImage: uid, v1alpha1.LabelImportAttempt: attempt}}}
	}
	for i, tc := range []struct {
		o    *corev1.PersistentVolumeClaim
		want int32
	}{
		{meta("vmdi-u-2", "u", "2"), 2}, {meta("vmdi-u-2", "v", "2"), 0}, {meta("vmdi-u-2", "u", "1"), 0}, {meta("x", "u", "2"), 0},
		{meta("vmdi-u-0", "u", "0"), 0}, {meta("vmdi-u-02", "u", "02"), 0}, {meta("vmdi-u-", "u", ""), 0}, {meta("vmdi-u--1", "u", "-1"), 0},
	} {
		if got := attemptOf("u", tc.o); got != tc.want {
			t.Errorf("%d: %d", i, got)
		}
	}
	if !slices.Contains([]int{45, 46}, len(childName("01234567-89ab-cdef-0123-456789abcdef", 100))) {
		t.Errorf("the names are %d long", len(childName("01234567-89ab-cdef-0123-456789abcdef", 100)))
	}
}
