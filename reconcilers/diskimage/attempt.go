package diskimage

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Defaults of spec.import.
const (
	defaultDeadline   = 2 * time.Hour
	defaultStall      = 15 * time.Minute
	defaultRetryLimit = 5
)

// The pause before the next attempt doubles with each retry.
const firstPause, lastPause = time.Minute, 30 * time.Minute

// maxRestarts limits the restarts of an importer that count; every retryLimit is lower.
const maxRestarts = 1_000_000

// Annotations of CDI.
const (
	// bindImmediately makes CDI bind the claim without a Pod that uses it.
	bindImmediately = "cdi.kubevirt.io/storage.bind.immediate.requested"
	// deleteAfterCompletion "false" prevents a CDI before 1.62 from deleting the DataVolume.
	deleteAfterCompletion = "cdi.kubevirt.io/storage.deleteAfterCompletion"
	// fatalError is set on a claim whose import CDI does not retry.
	fatalError = "cdi.kubevirt.io/storage.import.fatalError"
	// podPhase is set on a claim to the phase of the importer's Pod.
	podPhase = "cdi.kubevirt.io/storage.pod.phase"
	// runningReason is set on a claim to the reason why the importer runs or not.
	runningReason = "cdi.kubevirt.io/storage.condition.running.reason"
)

// notCreated are reasons for which CDI could not create the importer's Pod. It reports them as a Pod that has failed, and tries again.
var notCreated = []string{"ErrStartingPod", "ErrExceededQuota"}

// checksumError is the reason of a DataVolume condition if the checksum does not match.
const checksumError = "ChecksumError"

// progressGrain is the maximum age of status.attempt.progressAt while the progress changes, so that not every change
// is a write.
const progressGrain = time.Minute

// eventPage and eventPages limit the events of a claim that are read. Their messages have no limit, so few are held at a time.
const eventPage, eventPages = 10, 10

// begin persists that an attempt starts. The next pass creates its DataVolume.
func (r *Reconciler) begin(ctx context.Context, v *view, number int32) error {
	if v.noVolumes || v.noSnapshots {
		v.unserved()
		return nil
	}
	if v.newest() < number { // otherwise the attempt has begun and its record was lost
		if ready, err := r.classesFit(ctx, v); !ready || err != nil {
			return err
		}
		if allowed, err := r.secretAllowed(ctx, v); !allowed || err != nil {
			return err
		}
	}
	retries := int32(0)
	if v.Status.Attempt != nil {
		retries = v.Status.Attempt.RetriesUsed
	}
	v.Status.Attempt = &v1alpha1.VMDiskImageAttempt{Number: number, StartedAt: v.time(), RetriesUsed: retries}
	v.Status.Claim, v.Status.Phase = nil, v1alpha1.VMDiskImagePending
	v.importing("waiting for CDI")
	v.again = time.Millisecond
	return nil
}

// attempt advances the current attempt.
func (r *Reconciler) attempt(ctx context.Context, v *view) error {
	a := v.Status.Attempt
	// A process that wrongly considered itself the leader can have created an object of an earlier attempt.
	if none, err := r.remove(ctx, v, func(attempt int32) bool { return attempt != a.Number }); !none || err != nil {
		return err
	}
	if v.noVolumes || v.noSnapshots {
		v.unserved()
		return nil
	}
	v.again = poll
	if v.Status.Claim != nil {
		return r.snapshot(ctx, v)
	}
	volume := of(v, v.volumes)
	switch {
	case volume == nil && a.DataVolumeUID != "", volume != nil && a.DataVolumeUID != "" && a.DataVolumeUID != volume.UID,
		volume != nil && !volume.DeletionTimestamp.IsZero():
		v.fail(v1alpha1.ReasonImportFailed, "the DataVolume was deleted", false)
	case volume == nil && v.overdue():
		v.fail(v1alpha1.ReasonImportDeadlineExceeded, v.overdueText(), false)
	case volume == nil:
		if allowed, err := r.secretAllowed(ctx, v); !allowed || err != nil {
			return err
		}
		return r.create(ctx, v, v.wanted(), v1alpha1.ConditionImported)
	case !v.unaltered(volume):
	default:
		a.DataVolumeUID = volume.UID
		v.follow(volume, r.warning(ctx, volume, of(v, v.claims)))
	}
	return nil
}

// warning returns the latest Warning event of a claim that is not bound, or of a DataVolume without a claim. CDI reports some causes only
// there, such as a quota that its second claim would exceed, or a StorageClass for which it knows no access mode. The import does not depend
// on it: any editor of the namespace can write events.
func (r *Reconciler) warning(ctx context.Context, volume *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) string {
	about := client.Object(claim)
	switch {
	case claim == nil:
		about = volume
	case claim.Status.Phase == corev1.ClaimBound:
		return ""
	}
	var latest *corev1.Event
	options := client.ListOptions{Namespace: about.GetNamespace(), FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(about.GetUID())), Limit: eventPage}
	for range eventPages {
		var events corev1.EventList
		if err := r.Live.List(ctx, &events, &options); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "listing the events of an import", "kind", kindOf(about), "name", about.GetName())
			return ""
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Type == corev1.EventTypeWarning && (latest == nil || !e.LastTimestamp.Before(&latest.LastTimestamp)) {
				latest = e.DeepCopy()
			}
		}
		if options.Continue = events.Continue; options.Continue == "" {
			break
		}
	}
	if latest == nil {
		return ""
	}
	return kindOf(about) + ": " + v1alpha1.Cut(public(latest.Reason+" "+latest.Message), 1024)
}

// wanted returns the DataVolume of the current attempt.
func (v *view) wanted() *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: v.meta(map[string]string{bindImmediately: "true", deleteAfterCompletion: "false"}),
		Spec: cdiv1.DataVolumeSpec{
			Source: v.source(),
			Storage: &cdiv1.StorageSpec{
				StorageClassName: pointer(v.Spec.StorageClass),
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: v.Spec.DiskSize}},
			},
		},
	}
}

// meta returns the metadata of an object of the current attempt.
func (v *view) meta(annotations map[string]string) metav1.ObjectMeta {
	annotations[v1alpha1.AnnotationDiskImageName] = v.Name
	return metav1.ObjectMeta{
		Namespace: v.Namespace, Name: childName(v.UID, v.Status.Attempt.Number), Annotations: annotations,
		Labels: map[string]string{
			v1alpha1.LabelDiskImage:     string(v.UID),
			v1alpha1.LabelImportAttempt: fmt.Sprint(v.Status.Attempt.Number),
		},
	}
}

func (v *view) source() *cdiv1.DataVolumeSource {
	secret := ""
	if v.Spec.SecretRef != nil {
		secret = v.Spec.SecretRef.Name
	}
	switch v.Spec.SourceType {
	case v1alpha1.VMDiskImageS3:
		return &cdiv1.DataVolumeSource{S3: &cdiv1.DataVolumeSourceS3{URL: v.Spec.URL, SecretRef: secret}}
	case v1alpha1.VMDiskImageRegistry:
		return &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: &v.Spec.URL, SecretRef: pointer(secret)}}
	}
	return &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: v.Spec.URL, SecretRef: secret, Checksum: v.Spec.Checksum}}
}

// pointer returns nil for an empty text.
func pointer(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// create creates an object of the current attempt.
func (r *Reconciler) create(ctx context.Context, v *view, o client.Object, about v1alpha1.ConditionType) error {
	err := r.Client.Create(ctx, o)
	switch {
	case err == nil:
		v.again = time.Millisecond
		return nil
	case apierrors.IsAlreadyExists(err):
		// If another process created it for this attempt, the next pass lists it.
		v.says(about, metav1.ConditionFalse, v1alpha1.ReasonOwnedByAnother,
			fmt.Sprintf("%s %s is not of this VMDiskImage: delete it", kindOf(o), o.GetName()))
		v.again = poll
		return nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
		v.says(about, metav1.ConditionFalse, v1alpha1.ReasonImportRejected, fmt.Sprintf("creating %s %s: %v", kindOf(o), o.GetName(), err))
		v.again = lastRetry
		return nil
	}
	return fmt.Errorf("creating %s %s: %w", kindOf(o), o.GetName(), err)
}

// unaltered reports whether the DataVolume has the source of the image. If not, it was created by another client, or
// the API server dropped the checksum, which a CDI before 1.65 does not support.
func (v *view) unaltered(volume *cdiv1.DataVolume) bool {
	want, got := v.source(), volume.Spec.Source.DeepCopy()
	if equality.Semantic.DeepEqual(want, got) {
		return true
	}
	if want.HTTP != nil && got != nil && got.HTTP != nil && got.HTTP.Checksum == "" {
		got.HTTP.Checksum = want.HTTP.Checksum
		if equality.Semantic.DeepEqual(want, got) {
			v.fail(v1alpha1.ReasonChecksumNotSupported, "this CDI cannot verify a checksum: install version 1.65 or later, or remove spec.checksum", true)
			return false
		}
	}
	v.imported(metav1.ConditionFalse, v1alpha1.ReasonOwnedByAnother, fmt.Sprintf("DataVolume %s has another source: delete it, with an override of the policy images-children", volume.Name))
	return false
}

// follow reports the progress of CDI, and ends the attempt where CDI would retry for ever. The warning is about the
// claim or the DataVolume.
func (v *view) follow(volume *cdiv1.DataVolume, warning string) {
	a := v.Status.Attempt
	// Users who may edit DataVolumes can write it too: avoid an overflow.
	a.RestartCount = min(max(a.RestartCount, volume.Status.RestartCount), maxRestarts)
	claim := of(v, v.claims)
	switch volume.Status.Phase {
	case cdiv1.Succeeded:
		if claim != nil && claim.Status.Phase == corev1.ClaimBound && metav1.IsControlledBy(claim, volume) {
			v.Status.Claim = &v1alpha1.VMDiskImageChild{Name: claim.Name, UID: claim.UID}
			a.Progress = v1alpha1.Cut(string(volume.Status.Progress), 64)
			v.imported(metav1.ConditionTrue, v1alpha1.ReasonImportSucceeded, "")
			v.again = time.Millisecond
			return
		}
	case cdiv1.Failed:
		text, checksum := reported(volume, claim)
		if checksum {
			v.fail(v1alpha1.ReasonChecksumMismatch, text, true)
		} else {
			v.fail(v1alpha1.ReasonImportFailed, text, false)
		}
		return
	}
	text, _ := reported(volume, claim)
	if a.LastError = cmp.Or(importerError(volume), a.LastError); a.LastError != "" && !strings.Contains(text, a.LastError) {
		text += ", last error: " + a.LastError
	}
	if _, said, _ := strings.Cut(warning, ": "); warning != "" && !strings.Contains(text, said) {
		text += ", " + warning
	}
	switch {
	case claim != nil && claim.Annotations[podPhase] == string(corev1.PodFailed) && claim.Annotations[fatalError] == "" &&
		!slices.Contains(notCreated, claim.Annotations[runningReason]):
		// CDI neither deletes nor replaces such a Pod.
		v.fail(v1alpha1.ReasonImportFailed, "the importer's Pod failed, as when it is evicted: "+text, false)
	case v.overdue():
		v.fail(v1alpha1.ReasonImportDeadlineExceeded, v.overdueText()+": "+text, false)
	case a.RetriesUsed+a.RestartCount > v.retryLimit():
		v.fail(v1alpha1.ReasonImportFailed, text, false)
	case v.stalled(volume):
		v.fail(v1alpha1.ReasonImportStalled, fmt.Sprintf("no progress for %v: %s", v.stallTimeout(), text), false)
	case volume.Status.Phase == cdiv1.Unknown:
		v.imported(metav1.ConditionUnknown, v1alpha1.ReasonImportUnknown, text)
	default:
		if running(volume.Status.Phase) {
			v.Status.Phase = v1alpha1.VMDiskImageImporting
		}
		v.importing(text)
	}
}

func running(phase cdiv1.DataVolumePhase) bool {
	return phase == cdiv1.ImportInProgress || phase == cdiv1.Paused || phase == cdiv1.Succeeded
}

// importerError returns the importer's last error if CDI still reports it: CDI drops it when the importer runs again.
func importerError(volume *cdiv1.DataVolume) string {
	for _, c := range volume.Status.Conditions {
		if c.Type == cdiv1.DataVolumeRunning && c.Status == corev1.ConditionFalse && (c.Reason == "Error" || c.Reason == "OOMKilled") {
			return v1alpha1.Cut(strings.TrimSpace(public(c.Message)), 1024)
		}
	}
	return ""
}

// reported returns CDI's description of the import, and whether the checksum does not match.
func reported(volume *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) (text string, checksum bool) {
	text = "CDI reports phase " + cmp.Or(string(volume.Status.Phase), "none")
	for _, c := range volume.Status.Conditions {
		if c.Status == corev1.ConditionTrue || c.Type == cdiv1.DataVolumeReady {
			continue
		}
		if said := strings.TrimSpace(c.Reason + " " + public(c.Message)); said != "" {
			text += fmt.Sprintf(", %s: %s", c.Type, v1alpha1.Cut(said, 1024))
		}
		checksum = checksum || c.Reason == checksumError || strings.Contains(c.Message, "checksum mismatch")
	}
	if claim != nil && claim.Annotations[fatalError] != "" {
		said := v1alpha1.Cut(public(claim.Annotations[fatalError]), 1024)
		text, checksum = text+", "+said, checksum || strings.Contains(strings.ToLower(said), "checksum")
	}
	return text, checksum
}

// secretParts matches the parts of a URL that can contain credentials: the user, and the query, which contains the
// signature of a presigned URL. An importer's error contains every URL that it was redirected to.
var secretParts = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)([^\s"'/?#]*@)?([^\s"'?#]*)(\?[^\s"'#]*)?`)

// public returns a text without the credentials of its URLs.
func public(text string) string { return secretParts.ReplaceAllString(text, "$1$3") }

// stalled records the progress, and reports whether there was none for too long. An importer without readable
// progress does not count as stalled while it runs.
func (v *view) stalled(volume *cdiv1.DataVolume) bool {
	a, now := v.Status.Attempt, string(volume.Status.Progress)
	if volume.Status.Phase != cdiv1.ImportInProgress && volume.Status.Phase != cdiv1.Paused {
		a.ProgressAt = nil
		return false
	}
	_, known := percent(now)
	unread := !known && slices.ContainsFunc(volume.Status.Conditions, func(c cdiv1.DataVolumeCondition) bool {
		return c.Type == cdiv1.DataVolumeRunning && c.Status == corev1.ConditionTrue
	})
	before, _ := percent(a.Progress)
	after, _ := percent(now)
	old := a.ProgressAt == nil || v.now.Sub(a.ProgressAt.Time) >= progressGrain
	switch {
	case a.ProgressAt == nil, now != a.Progress && (old || int(before) != int(after)), unread && old:
		a.Progress, a.ProgressAt = v1alpha1.Cut(now, 64), ptr.To(v.time())
		return false
	}
	return now == a.Progress && v.now.Sub(a.ProgressAt.Time) >= v.stallTimeout()
}

// percent parses a progress such as 12.34%.
func percent(progress string) (float64, bool) {
	value, err := strconv.ParseFloat(strings.TrimSuffix(progress, "%"), 64)
	return value, err == nil
}

func (r *Reconciler) snapshot(ctx context.Context, v *view) error {
	v.Status.Phase = v1alpha1.VMDiskImageImporting
	claim := of(v, v.claims)
	if claim == nil || claim.UID != v.Status.Claim.UID || !claim.DeletionTimestamp.IsZero() {
		v.fail(v1alpha1.ReasonImportFailed, "the claim was deleted", false)
		return nil
	}
	s := of(v, v.snapshots)
	switch {
	case s != nil && s.DeletionTimestamp.IsZero() && ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, "") != claim.Name:
		v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionFalse, v1alpha1.ReasonOwnedByAnother,
			fmt.Sprintf("VolumeSnapshot %s has another source: delete it, with an override of the policy images-children", s.Name))
	case s != nil && s.DeletionTimestamp.IsZero() && usable(s):
		v.Status.Snapshot = &v1alpha1.VMDiskImageChild{Name: s.Name, UID: s.UID}
		size := claim.Status.Capacity[corev1.ResourceStorage]
		if s.Status.RestoreSize != nil && !s.Status.RestoreSize.IsZero() {
			size = *s.Status.RestoreSize
		}
		v.Status.VirtualSize = &size
		v.watchOver()
		v.again = 0
	case v.overdue():
		v.fail(v1alpha1.ReasonSnapshotFailed, v.overdueText()+": "+snapshotText(s), false)
	case s == nil:
		class, reason, missing, err := r.snapshotClass(ctx, v, ptr.Deref(claim.Spec.StorageClassName, ""))
		if missing != "" {
			v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionFalse, reason, missing)
		}
		if missing != "" || err != nil {
			return err
		}
		return r.create(ctx, v, &snapshotv1.VolumeSnapshot{
			ObjectMeta: v.meta(map[string]string{}),
			Spec: snapshotv1.VolumeSnapshotSpec{
				Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim.Name},
				VolumeSnapshotClassName: &class,
			},
		}, v1alpha1.ConditionSnapshotReady)
	case s.Status != nil && s.Status.Error != nil:
		v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionFalse, v1alpha1.ReasonSnapshotFailed, snapshotText(s))
	default:
		v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, snapshotText(s))
	}
	return nil
}

// usable reports whether disks can be created from a snapshot. If a driver does not report readiness, a known size
// counts.
func usable(s *snapshotv1.VolumeSnapshot) bool {
	return s.Status != nil && s.Status.Error == nil && ptr.Deref(s.Status.ReadyToUse, s.Status.RestoreSize != nil)
}

func snapshotText(s *snapshotv1.VolumeSnapshot) string {
	switch {
	case s == nil:
		return "there is no snapshot yet"
	case s.Status != nil && s.Status.Error != nil && s.Status.Error.Message != nil:
		return fmt.Sprintf("VolumeSnapshot %s: %s", s.Name, v1alpha1.Cut(*s.Status.Error.Message, 1024))
	}
	return fmt.Sprintf("VolumeSnapshot %s is not ready yet", s.Name)
}

// watchOver reports whether an imported image still has its claim and its snapshot.
func (v *view) watchOver() {
	claim, s := of(v, v.claims), of(v, v.snapshots)
	there := func(o client.Object, child *v1alpha1.VMDiskImageChild) bool {
		return child != nil && o.GetUID() == child.UID && o.GetDeletionTimestamp().IsZero()
	}
	gone := ""
	switch {
	case v.noSnapshots:
		v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionUnknown, v1alpha1.ReasonSnapshotsNotServed, "the cluster does not serve VolumeSnapshots any more")
		v.again = pause
		return
	case s == nil || !there(s, v.Status.Snapshot):
		gone = "VolumeSnapshot " + v.Status.Snapshot.Name
	case claim == nil || !there(claim, v.Status.Claim):
		gone = "PersistentVolumeClaim " + v.Status.Snapshot.Name
	}
	if gone == "" && s.Status != nil && !ptr.Deref(s.Status.ReadyToUse, true) {
		// Its content was deleted. The snapshot controller takes the snapshot of the claim again.
		v.Status.Phase = v1alpha1.VMDiskImageImporting
		v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionFalse, v1alpha1.ReasonSnapshotFailed,
			snapshotText(s)+"; if it does not become ready again, create another VMDiskImage, and delete this one")
		return
	}
	if gone != "" {
		v.Status.Phase = v1alpha1.VMDiskImageLost
		v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionFalse, v1alpha1.ReasonImageLost, gone+" was deleted: create another VMDiskImage, and delete this one")
		return
	}
	v.Status.Phase = v1alpha1.VMDiskImageReady
	v.imported(metav1.ConditionTrue, v1alpha1.ReasonImportSucceeded, "")
	v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionTrue, v1alpha1.ReasonSnapshotReady, "")
}
