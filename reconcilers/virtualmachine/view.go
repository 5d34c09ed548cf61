package virtualmachine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// look is a machine as one turn found it. It is written on, and thrown away after the first write.
type look struct {
	*drive.Turn
	read *v1alpha1.VirtualMachineStatus // as it was read

	seen     runtime.Observation
	observed bool
	err      error  // why it was not observed, or not told
	waits    string // what is waited for, for people
	paused   bool   // it is not started again just yet
	stays    bool   // it is to be moved, and its runtime cannot do that
	unmoved  string // why it could not be moved
	oversize string // why it may not be given the size of its spec
	refusal  refusal

	imageTrouble *diskTrouble // why the disk that it boots from is not made yet

	diskTrouble *diskTrouble // why its disks are not as they should be, if that is known
}

// ours reports whether the machine is the business of this reconciler: no operation or deletion holds it, and nobody is being undone.
func (l *look) ours() bool {
	a := l.VM.Status.ActiveOperation
	return len(l.VM.Status.Undoing) == 0 &&
		(a == nil || (a.Origin != v1alpha1.OriginOperation && a.Origin != v1alpha1.OriginDeletion))
}

// missing reports whether the machine may have to be made: it was never seen, and nothing is being undone.
func (l *look) missing() bool { return l.VM.Status.InstanceID == "" && len(l.VM.Status.Undoing) == 0 }

// lacksDisks reports whether a machine that somebody holds was last seen without disks that its spec names.
func (l *look) lacksDisks() bool {
	return len(l.VM.Status.Undoing) == 0 && len(claim.MissingDisks(l.VM, &runtime.Observation{Disks: l.VM.Status.Disks})) > 0
}

// observe looks at the machine on its runtime.
func (l *look) observe(ctx context.Context) {
	l.seen, l.err = l.Observe(ctx)
	if l.observed = l.err == nil; !l.observed {
		l.Troubled("observing VirtualMachine "+l.VM.Name, l.err)
	}
}

// save writes the status, with the conditions that follow from the rest of it, if it has changed, and tells whether it had.
func (r *Reconciler) save(ctx context.Context, l *look) (bool, error) {
	l.VM.Status.ObservedGeneration = l.VM.Generation
	if l.observed {
		l.Allocated(&l.seen)
	}
	l.settled()
	l.restartRequired()
	l.disksAttached()
	if r.ReadOnly {
		l.set(v1alpha1.ConditionReadOnly.Condition(metav1.ConditionTrue, v1alpha1.ReasonReadOnly, l.VM.Generation, runtime.Message(runtime.ErrReadOnly)))
	} else {
		meta.RemoveStatusCondition(&l.VM.Status.Conditions, string(v1alpha1.ConditionReadOnly))
	}
	ready := l.ready()
	l.set(ready)
	if equality.Semantic.DeepEqual(l.read, &l.VM.Status) {
		return false, nil
	}
	if err := l.Write(ctx); err != nil {
		return false, err
	}
	if l.read.InstanceID == "" && l.VM.Status.InstanceID != "" {
		r.tell(l, corev1.EventTypeNormal, v1alpha1.ReasonProvisioned, "Ensure", "instance %s was %s and is %s",
			l.seen.InstanceID, map[bool]string{true: "adopted", false: "created"}[l.seen.Adopted], l.seen.Power)
	}
	before := meta.FindStatusCondition(l.read.Conditions, ready.Type)
	asked := ready.Reason == string(v1alpha1.ReasonQuestionPending)
	if wrong(ready) && (before == nil || before.Reason != ready.Reason || asked && before.Message != ready.Message) {
		r.tell(l, corev1.EventTypeWarning, v1alpha1.ConditionReason(ready.Reason), "Observe", "%s", ready.Message)
	}
	l.read = l.VM.Status.DeepCopy()
	return true, nil
}

// micro is the clock as the claim has it.
func (l *look) micro() metav1.MicroTime { return metav1.NewMicroTime(l.Time) }
