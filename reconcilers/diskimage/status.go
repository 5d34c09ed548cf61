package diskimage

import (
	"cmp"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

func (v *view) deadline() time.Duration { return limit(v.Spec.Import.Deadline, defaultDeadline) }

func (v *view) stallTimeout() time.Duration { return limit(v.Spec.Import.StallTimeout, defaultStall) }

func (v *view) retryLimit() int32 { return ptr.Deref(v.Spec.Import.RetryLimit, defaultRetryLimit) }

func limit(set *metav1.Duration, otherwise time.Duration) time.Duration {
	if set == nil {
		return otherwise
	}
	return set.Duration
}

// time returns the time of the pass with the precision of a status.
func (v *view) time() metav1.Time { return metav1.NewTime(v.now.Truncate(time.Second)) }

func (v *view) overdue() bool { return v.now.Sub(v.Status.Attempt.StartedAt.Time) >= v.deadline() }

func (v *view) overdueText() string { return fmt.Sprintf("not complete within %v", v.deadline()) }

func (v *view) says(about v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) {
	v1alpha1.SetCondition(&v.Status.Conditions, about.Condition(status, reason, v.Generation, message), v.now)
}

func (v *view) imported(status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) {
	v.says(v1alpha1.ConditionImported, status, reason, message)
}

// importing reports the progress of the current attempt.
func (v *view) importing(text string) {
	v.imported(metav1.ConditionFalse, v1alpha1.ReasonImporting, fmt.Sprintf("attempt %d: %s", v.Status.Attempt.Number, text))
	v.noSnapshotYet()
}

func (v *view) noSnapshotYet() {
	v.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "waiting for the import")
}

// unserved reports which kinds an import waits for.
func (v *view) unserved() {
	v.again = pause
	if v.noVolumes {
		v.imported(metav1.ConditionFalse, v1alpha1.ReasonImportsNotServed, "the cluster does not serve DataVolumes of cdi.kubevirt.io/v1beta1: install CDI; the import then starts")
		return
	}
	v.imported(metav1.ConditionFalse, v1alpha1.ReasonSnapshotsNotServed,
		"the cluster does not serve VolumeSnapshots of snapshot.storage.k8s.io/v1: install the snapshot controller and its CustomResourceDefinitions; the import then starts")
}

// attemptEnded reports whether the conditions describe the end of an attempt, which must stay visible.
func (v *view) attemptEnded() bool {
	return v.Status.Snapshot != nil || v.Status.Phase == v1alpha1.VMDiskImageFailed || v.Status.Attempt != nil && v.Status.Attempt.RetryAt != nil
}

// disabled reports that images are not imported, and how to enable it.
func (v *view) disabled() {
	v.idle(v1alpha1.ReasonImportsDisabled, "this installation of Sallyport does not import images; an administrator can enable this with the chart value diskImages.enabled=true")
}

// idle reports why nothing is imported or deleted.
func (v *view) idle(reason v1alpha1.ConditionReason, text string) {
	if !v.DeletionTimestamp.IsZero() {
		v.blocks(reason, "the data cannot be deleted: "+text)
	}
	if !v.attemptEnded() {
		v.imported(metav1.ConditionFalse, reason, text)
	}
}

// setReadError reports a missing permission to read or delete the objects of the image.
func (v *view) setReadError(err error) {
	v.deletion = err.Error()
	if apierrors.IsForbidden(err) && !v.DeletionTimestamp.IsZero() {
		v.blocks(v1alpha1.ReasonPermissionDenied, err.Error())
	}
	if apierrors.IsForbidden(err) && !v.attemptEnded() {
		v.imported(metav1.ConditionUnknown, v1alpha1.ReasonPermissionDenied, err.Error())
	}
}

// fail ends the current attempt and schedules the next one, unless it was the last. Objects of the attempt are
// deleted by later passes, once this is persisted.
func (v *view) fail(reason v1alpha1.ConditionReason, text string, last bool) {
	a := v.Status.Attempt
	used := a.RetriesUsed + a.RestartCount + 1
	v.failure = reason
	v.again = time.Millisecond
	v.Status.Claim = nil
	v.noSnapshotYet()
	if last || used > v.retryLimit() {
		if !last {
			text = fmt.Sprintf("%s (%s)", text, reason)
			reason = v1alpha1.ReasonRetryLimitExceeded
		}
		v.Status.Phase = v1alpha1.VMDiskImageFailed
		again := commands.Line(append(append([]string{"kubectl", "annotate", "--overwrite"}, commands.Object("vmdiskimages", v.Namespace, v.Name)...),
			fmt.Sprintf("%s=%d", v1alpha1.AnnotationRetryImport, a.Number+1))...)
		v.imported(metav1.ConditionFalse, reason, fmt.Sprintf("attempt %d failed: %s; to import again: %s", a.Number, text, again))
		return
	}
	a.RetriesUsed = used
	at := metav1.NewTime(v.time().Add(min(lastPause, firstPause<<min(used-1, 5))))
	a.RetryAt = &at
	v.Status.Phase = v1alpha1.VMDiskImagePending
	v.imported(metav1.ConditionFalse, reason, fmt.Sprintf("attempt %d failed: %s; attempt %d starts at %s", a.Number, text, a.Number+1, at.UTC().Format(time.RFC3339)))
}

// completeStatus derives the rest of the status.
func (v *view) completeStatus() {
	s := &v.Status
	s.ObservedGeneration = v.Generation
	s.Phase = cmp.Or(s.Phase, v1alpha1.VMDiskImagePending)
	if v1alpha1.ConditionImported.In(s.Conditions) == nil {
		v.imported(metav1.ConditionFalse, v1alpha1.ReasonImporting, "the import has not started yet")
	}
	if v1alpha1.ConditionSnapshotReady.In(s.Conditions) == nil {
		v.noSnapshotYet()
	}
	ready := v1alpha1.ConditionReady.Condition(metav1.ConditionTrue, v1alpha1.ReasonImageReady, v.Generation, "")
	for _, part := range []v1alpha1.ConditionType{v1alpha1.ConditionSnapshotReady, v1alpha1.ConditionImported} {
		if c := part.In(s.Conditions); c.Status != metav1.ConditionTrue {
			ready.Status, ready.Reason, ready.Message = c.Status, c.Reason, c.Message
		}
	}
	if !v.DeletionTimestamp.IsZero() {
		s.Phase = v1alpha1.VMDiskImageTerminating
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, string(v1alpha1.ReasonTerminating), cmp.Or(v.deletion, "deleting the data")
	}
	v1alpha1.SetCondition(&s.Conditions, ready, v.now)
	v.setUsage()
}

// setUsage sets the conditions about references and deletion of the image.
func (v *view) setUsage() {
	if refs := v.Status.References; refs != nil {
		if refs.Count > 0 {
			v.says(v1alpha1.ConditionInUse, metav1.ConditionTrue, v1alpha1.ReasonImageReferenced, "used by "+usersText(refs))
		} else {
			v.says(v1alpha1.ConditionInUse, metav1.ConditionFalse, v1alpha1.ReasonImageUnreferenced, "")
		}
	}
	if v.Spec.Retired {
		v.says(v1alpha1.ConditionRetired, metav1.ConditionTrue, v1alpha1.ReasonRetired, "spec.retired is true: no new disk may use the image")
	} else {
		v.says(v1alpha1.ConditionRetired, metav1.ConditionFalse, v1alpha1.ReasonInService, "")
	}
	if v.blockade != nil {
		v.says(v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, v.blockade.reason, v.blockade.message)
	} else {
		meta.RemoveStatusCondition(&v.Status.Conditions, string(v1alpha1.ConditionDeletionBlocked))
	}
}
