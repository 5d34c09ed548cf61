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

func (l *view) deadline() time.Duration { return limit(l.Spec.Import.Deadline, defaultDeadline) }

func (l *view) stallTimeout() time.Duration { return limit(l.Spec.Import.StallTimeout, defaultStall) }

func (l *view) retryLimit() int32 { return ptr.Deref(l.Spec.Import.RetryLimit, defaultRetryLimit) }

func limit(set *metav1.Duration, otherwise time.Duration) time.Duration {
	if set == nil {
		return otherwise
	}
	return set.Duration
}

// time returns the time of the pass with the precision of a status.
func (l *view) time() metav1.Time { return metav1.NewTime(l.now.Truncate(time.Second)) }

func (l *view) overdue() bool { return l.now.Sub(l.Status.Attempt.StartedAt.Time) >= l.deadline() }

func (l *view) overdueText() string { return fmt.Sprintf("not complete within %v", l.deadline()) }

func (l *view) says(about v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) {
	v1alpha1.SetCondition(&l.Status.Conditions, about.Condition(status, reason, l.Generation, message), l.now)
}

func (l *view) imported(status metav1.ConditionStatus, reason v1alpha1.ConditionReason, message string) {
	l.says(v1alpha1.ConditionImported, status, reason, message)
}

// importing reports the progress of the current attempt.
func (l *view) importing(text string) {
	l.imported(metav1.ConditionFalse, v1alpha1.ReasonImporting, fmt.Sprintf("attempt %d: %s", l.Status.Attempt.Number, text))
	l.noSnapshotYet()
}

func (l *view) noSnapshotYet() {
	l.says(v1alpha1.ConditionSnapshotReady, metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "waiting for the import")
}

// unserved reports which kinds an import waits for.
func (l *view) unserved() {
	l.again = pause
	if l.noVolumes {
		l.imported(metav1.ConditionFalse, v1alpha1.ReasonImportsNotServed, "the cluster does not serve DataVolumes of cdi.kubevirt.io/v1beta1: install CDI; the import then starts")
		return
	}
	l.imported(metav1.ConditionFalse, v1alpha1.ReasonSnapshotsNotServed,
		"the cluster does not serve VolumeSnapshots of snapshot.storage.k8s.io/v1: install the snapshot controller and its CustomResourceDefinitions; the import then starts")
}

// attemptEnded reports whether the conditions describe the end of an attempt, which must stay visible.
func (l *view) attemptEnded() bool {
	return l.Status.Snapshot != nil || l.Status.Phase == v1alpha1.VMDiskImageFailed || l.Status.Attempt != nil && l.Status.Attempt.RetryAt != nil
}

// disabled reports that images are not imported, and how to enable it.
func (l *view) disabled() {
	l.idle(v1alpha1.ReasonImportsDisabled, "this installation of Sallyport does not import images; an administrator can enable this with the chart value diskImages.enabled=true")
}

// idle reports why nothing is imported or deleted.
func (l *view) idle(reason v1alpha1.ConditionReason, text string) {
	if !l.DeletionTimestamp.IsZero() {
		l.blocks(reason, "the data cannot be deleted: "+text)
	}
	if !l.attemptEnded() {
		l.imported(metav1.ConditionFalse, reason, text)
	}
}

// setReadError reports a missing permission to read or delete the objects of the image.
func (l *view) setReadError(err error) {
	l.deletion = err.Error()
	if apierrors.IsForbidden(err) && !l.DeletionTimestamp.IsZero() {
		l.blocks(v1alpha1.ReasonPermissionDenied, err.Error())
	}
	if apierrors.IsForbidden(err) && !l.attemptEnded() {
		l.imported(metav1.ConditionUnknown, v1alpha1.ReasonPermissionDenied, err.Error())
	}
}

// fail ends the current attempt and schedules the next one, unless it was the last. Objects of the attempt are
// deleted by later passes, once this is persisted.
func (l *view) fail(reason v1alpha1.ConditionReason, text string, last bool) {
	a := l.Status.Attempt
	used := a.RetriesUsed + a.RestartCount + 1
	l.failure = reason
	l.again = time.Millisecond
	l.Status.Claim = nil
	l.noSnapshotYet()
	if last || used > l.retryLimit() {
		if !last {
			text = fmt.Sprintf("%s (%s)", text, reason)
			reason = v1alpha1.ReasonRetryLimitExceeded
		}
		l.Status.Phase = v1alpha1.VMDiskImageFailed
		again := commands.Line(append(append([]string{"kubectl", "annotate", "--overwrite"}, commands.Object("vmdiskimages", l.Namespace, l.Name)...),
			fmt.Sprintf("%s=%d", v1alpha1.AnnotationRetryImport, a.Number+1))...)
		l.imported(metav1.ConditionFalse, reason, fmt.Sprintf("attempt %d failed: %s; to import again: %s", a.Number, text, again))
		return
	}
	a.RetriesUsed = used
	at := metav1.NewTime(l.time().Add(min(lastPause, firstPause<<min(used-1, 5))))
	a.RetryAt = &at
	l.Status.Phase = v1alpha1.VMDiskImagePending
	l.imported(metav1.ConditionFalse, reason, fmt.Sprintf("attempt %d failed: %s; attempt %d starts at %s", a.Number, text, a.Number+1, at.UTC().Format(time.RFC3339)))
}

// completeStatus derives the rest of the status.
func (l *view) completeStatus() {
	s := &l.Status
	s.ObservedGeneration = l.Generation
	s.Phase = cmp.Or(s.Phase, v1alpha1.VMDiskImagePending)
	if v1alpha1.ConditionImported.In(s.Conditions) == nil {
		l.imported(metav1.ConditionFalse, v1alpha1.ReasonImporting, "the import has not started yet")
	}
	if v1alpha1.ConditionSnapshotReady.In(s.Conditions) == nil {
		l.noSnapshotYet()
	}
	ready := v1alpha1.ConditionReady.Condition(metav1.ConditionTrue, v1alpha1.ReasonImageReady, l.Generation, "")
	for _, part := range []v1alpha1.ConditionType{v1alpha1.ConditionSnapshotReady, v1alpha1.ConditionImported} {
		if c := part.In(s.Conditions); c.Status != metav1.ConditionTrue {
			ready.Status, ready.Reason, ready.Message = c.Status, c.Reason, c.Message
		}
	}
	if !l.DeletionTimestamp.IsZero() {
		s.Phase = v1alpha1.VMDiskImageTerminating
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, string(v1alpha1.ReasonTerminating), cmp.Or(l.deletion, "deleting the data")
	}
	v1alpha1.SetCondition(&s.Conditions, ready, l.now)
	l.setUsage()
}

// setUsage sets the conditions about references and deletion of the image.
func (l *view) setUsage() {
	if refs := l.Status.References; refs != nil {
		if refs.Count > 0 {
			l.says(v1alpha1.ConditionInUse, metav1.ConditionTrue, v1alpha1.ReasonImageReferenced, "used by "+usersText(refs))
		} else {
			l.says(v1alpha1.ConditionInUse, metav1.ConditionFalse, v1alpha1.ReasonImageUnreferenced, "")
		}
	}
	if l.Spec.Retired {
		l.says(v1alpha1.ConditionRetired, metav1.ConditionTrue, v1alpha1.ReasonRetired, "spec.retired is true: no new disk may use the image")
	} else {
		l.says(v1alpha1.ConditionRetired, metav1.ConditionFalse, v1alpha1.ReasonInService, "")
	}
	if l.blockade != nil {
		l.says(v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, l.blockade.reason, l.blockade.message)
	} else {
		meta.RemoveStatusCondition(&l.Status.Conditions, string(v1alpha1.ConditionDeletionBlocked))
	}
}
