package virtualmachine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// pass is one Reconcile.
type pass struct {
	key     types.NamespacedName
	sent    bool          // something was sent: its effect is waited for before anything is sent again
	again   time.Duration // when to look again, 0 for when something changes
	trouble error         // what keeps the machine from being taken further; everything is tried again, later and later
}

// look is a machine as one look found it. It is written on, and thrown away after the first write.
type look struct {
	*pass
	now  time.Time
	read *v1alpha1.VirtualMachineStatus // as it was read
	vm   *v1alpha1.VirtualMachine

	rt       *runtime.Client
	seen     runtime.Observation
	observed bool
	err      error  // why it was not observed, or not told
	waits    string // what is waited for, for people
	paused   bool   // it is not started again just yet
}

// look reads the VirtualMachine live.
func (r *Reconciler) look(ctx context.Context, p *pass) (*look, error) {
	p.again, p.trouble = 0, nil
	vm := &v1alpha1.VirtualMachine{}
	if err := r.Live.Get(ctx, p.key, vm); err != nil {
		return nil, fmt.Errorf("reading VirtualMachine %s: %w", p.key, err)
	}
	return &look{pass: p, now: r.Now(), read: vm.Status.DeepCopy(), vm: vm}, nil
}

// ours tells whether the machine is the business of this reconciler: nobody holds it but the run policy, and nobody is being
// undone.
func (l *look) ours() bool {
	a := l.vm.Status.ActiveOperation
	return len(l.vm.Status.Undoing) == 0 && (a == nil || a.Origin == v1alpha1.OriginRunPolicy)
}

// missing tells whether the machine may have to be made: it was never seen, and nothing is being undone.
func (l *look) missing() bool { return l.vm.Status.InstanceID == "" && len(l.vm.Status.Undoing) == 0 }

// observe looks at the machine on its runtime.
func (r *Reconciler) observe(ctx context.Context, l *look) {
	if l.rt, l.err = r.Runtimes(ctx, l.vm); l.err == nil {
		l.seen, l.err = l.rt.Observe(ctx, runtime.MachineOf(l.vm))
	}
	l.observed = l.err == nil
}

// send tells the runtime something, if the VirtualMachine is still exactly as it was looked at: the claim is, and so is what
// is wanted. What goes wrong is reported, and tried again.
func (r *Reconciler) send(ctx context.Context, l *look, call func() error) (bool, error) {
	now := &v1alpha1.VirtualMachine{}
	if err := r.Live.Get(ctx, l.key, now); err != nil {
		return false, fmt.Errorf("looking at the claim on VirtualMachine %s: %w", l.key, err)
	}
	if now.UID != l.vm.UID || now.ResourceVersion != l.vm.ResourceVersion {
		return true, nil
	}
	if l.err = call(); l.err != nil {
		return false, nil
	}
	l.sent = true
	return true, nil
}

// save writes the status, with the conditions that follow from the rest of it, if it has changed, and tells whether it had.
func (r *Reconciler) save(ctx context.Context, l *look) (bool, error) {
	l.vm.Status.ObservedGeneration = l.vm.Generation
	l.settled()
	ready := l.ready()
	l.set(ready)
	if equality.Semantic.DeepEqual(l.read, &l.vm.Status) {
		return false, nil
	}
	if err := r.Client.Status().Update(ctx, l.vm); err != nil {
		return false, fmt.Errorf("writing the status of VirtualMachine %s: %w", l.key, err)
	}
	if l.read.InstanceID == "" && l.vm.Status.InstanceID != "" {
		r.tell(l, corev1.EventTypeNormal, v1alpha1.ReasonProvisioned, "Ensure", "instance %s was %s, and is %s",
			l.seen.InstanceID, map[bool]string{true: "adopted", false: "made"}[l.seen.Adopted], l.seen.Power)
	}
	before := meta.FindStatusCondition(l.read.Conditions, ready.Type)
	if wrong(ready) && (before == nil || before.Reason != ready.Reason) {
		r.tell(l, corev1.EventTypeWarning, v1alpha1.ConditionReason(ready.Reason), "Observe", "%s", ready.Message)
	}
	l.read = l.vm.Status.DeepCopy()
	return true, nil
}

// wait has the machine looked at again after that time, or sooner.
func (p *pass) wait(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

// poll has the machine looked at again while the runtime is busy with it.
func (r *Reconciler) poll(p *pass) { p.wait(cmp.Or(r.Poll, defaultPoll)) }

// resync has a machine looked at again that is as it should be. Not all of them at once.
func (r *Reconciler) resync(p *pass) { p.wait(wait.Jitter(cmp.Or(r.Resync, defaultResync), 0.2)) }

// micro is the clock as the claim has it.
func (l *look) micro() metav1.MicroTime { return metav1.NewMicroTime(l.now) }
