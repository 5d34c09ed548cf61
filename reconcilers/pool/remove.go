package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/pool/busy"
)

// blocked is why members that should go do not.
type blocked struct {
	reason v1alpha1.ConditionReason
	why    string
}

// remove gives up the members that are named, and as many others as there are too many. It tells whether there were any.
func (r *Reconciler) remove(ctx context.Context, l *look) (bool, error) {
	victims, err := r.victims(ctx, l)
	if err != nil {
		return false, fmt.Errorf("choosing members of VirtualMachinePool %s to delete: %w", l.key(), err)
	}
	if len(l.blocked) > 0 {
		l.later(blockedRetry)
	}
	return r.giveUp(ctx, l, victims, func(member) string { return "" })
}

// giveUp deletes members, after it has written down which, and tells whether there were any. Why one goes is told with its deletion.
func (r *Reconciler) giveUp(ctx context.Context, l *look, victims []member, why func(member) string) (bool, error) {
	removing := make([]v1alpha1.ScaleDownTarget, len(victims))
	for i, m := range victims {
		removing[i] = m.target()
	}
	l.pool.Status.Removing = removing
	if len(victims) == 0 {
		return false, nil
	}
	if !slices.Equal(removing, l.read.Removing) {
		if err := r.save(ctx, l); err != nil {
			return false, err
		}
	}
	return true, inBatches(ctx, len(victims), func(ctx context.Context, i int) error { return r.delete(ctx, l, victims[i], why(victims[i])) })
}

// victims are the members to be given up now: those that are named, and others for as long as there are too many. What keeps members
// that should go is in l.blocked.
func (r *Reconciler) victims(ctx context.Context, l *look) (victims []member, err error) {
	named := l.named()
	for _, m := range named[:min(len(named), most)] {
		kept, err := r.refused(ctx, m)
		if err != nil {
			return nil, err
		}
		if kept != nil {
			l.blocked = append(l.blocked, *kept)
			continue
		}
		victims = append(victims, m)
	}
	surplus := len(l.staying()) - len(named) - l.desired()
	if surplus <= 0 {
		return victims, nil
	}
	if l.pool.Spec.ScaleDownPolicy == v1alpha1.ScaleDownExplicit {
		l.blocked = append(l.blocked, blocked{reason: v1alpha1.ReasonNobodyNamed, why: fmt.Sprintf(
			"surplus members: %d; scaleDownPolicy Explicit removes only named members (%s)",
			surplus, commands.Line("kubectl", "sallyport", "scale-down", l.pool.Name, "-n", l.pool.Namespace, "--vm", "NAME"))})
		return victims, nil
	}
	leases, err := r.leases(ctx, l)
	if err != nil {
		return nil, err
	}
	others, kept, err := r.choose(ctx, l, leases, l.candidates(), min(surplus, most-len(victims)))
	if len(others) < surplus { // and nobody could go in their place
		l.blocked = append(l.blocked, kept...)
	}
	return append(victims, others...), err
}

// choose takes so many of the members, in their order, that neither a Lease nor a policy keeps, and tells what kept those before them.
func (r *Reconciler) choose(
	ctx context.Context, l *look, leases map[types.UID]*coordinationv1.Lease, of []member, count int,
) (chosen []member, kept []blocked, err error) {
	for _, m := range of {
		if len(chosen) == count {
			break
		}
		keeps := l.busy(m, leases[m.UID])
		if keeps == nil {
			if keeps, err = r.refused(ctx, m); err != nil {
				return nil, nil, err
			}
		}
		if keeps == nil {
			chosen = append(chosen, m)
		} else {
			kept = append(kept, *keeps)
		}
	}
	return chosen, kept, nil
}

// candidates are the members that may go unnamed, those first that go first: those that were chosen before, those that are lost,
// others that do not run, such as paused ones, and then as the policy says.
func (l *look) candidates() []member {
	named := l.named()
	all := slices.DeleteFunc(l.staying(), func(m member) bool { return slices.Contains(named, m) })
	order := -1
	if l.pool.Spec.ScaleDownPolicy == v1alpha1.ScaleDownOldestFirst {
		order = 1
	}
	slices.SortStableFunc(all, func(a, b member) int {
		return cmp.Or(
			cmp.Compare(rank(!l.chosen(a)), rank(!l.chosen(b))), cmp.Compare(rank(!a.lost()), rank(!b.lost())),
			cmp.Compare(rank(a.ready()), rank(b.ready())),
			order*a.CreationTimestamp.Compare(b.CreationTimestamp.Time), order*cmp.Compare(a.slot, b.slot), cmp.Compare(a.Name, b.Name),
		)
	})
	return all
}

// chosen reports whether the member was written down to be given up, maybe by a process that died before it did so.
func (l *look) chosen(m member) bool { return slices.Contains(l.read.Removing, m.target()) }

// rank puts those first of which something is not true.
func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// leases reads the Leases that mark members as busy, by the UID of the member, after the members were read: what is marked later has
// been stamped since and is not deleted as it was read.
func (r *Reconciler) leases(ctx context.Context, l *look) (map[types.UID]*coordinationv1.Lease, error) {
	found := map[types.UID]*coordinationv1.Lease{}
	for next := ""; ; {
		var list coordinationv1.LeaseList
		err := r.Live.List(ctx, &list, client.InNamespace(l.pool.Namespace), client.HasLabels{v1alpha1.LabelBusyMachine},
			client.Limit(page), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("reading the Leases of busy members: %w", err)
		}
		for i := range list.Items {
			busy.Note(found, &list.Items[i], l.now)
		}
		if next = list.Continue; next == "" {
			return found, nil
		}
	}
}

// busy tells that a Lease keeps the member, and has the pool looked at again when it ends.
func (l *look) busy(m member, lease *coordinationv1.Lease) *blocked {
	if lease == nil {
		return nil
	}
	until := busy.Until(lease, l.now)
	l.later(until.Sub(l.now))
	return &blocked{reason: v1alpha1.ReasonMembersBusy, why: fmt.Sprintf("%s is busy with %s until %s",
		m.Name, v1alpha1.Cut(busy.Holder(lease), 200), until.UTC().Format(time.RFC3339))}
}

// refused tells that a policy keeps the member: those are asked by a deletion that is a dry run.
func (r *Reconciler) refused(ctx context.Context, m member) (*blocked, error) {
	err := r.Client.Delete(ctx, m.DeepCopy(), client.Preconditions{UID: &m.UID}, client.DryRunAll)
	switch {
	case apierrors.IsForbidden(err):
		return &blocked{reason: v1alpha1.ReasonDeletionRefused, why: fmt.Sprintf("%s: %s", m.Name, v1alpha1.Cut(err.Error(), 400))}, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, and another one may have its name
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("checking whether VirtualMachine %s can be deleted: %w", m.Name, err)
	}
	return nil, nil
}

// delete deletes a member as it was read, and tells people why. One that was changed since is looked at again.
func (r *Reconciler) delete(ctx context.Context, l *look, m member, why string) error {
	err := r.Client.Delete(ctx, m.DeepCopy(), client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return err
	case err != nil:
		r.Events.Eventf(l.pool, m.VirtualMachine, corev1.EventTypeWarning, "FailedDelete", "Delete", "VirtualMachine %s was not deleted: %s", m.Name, err)
		return fmt.Errorf("deleting VirtualMachine %s: %w", m.Name, err)
	}
	r.Events.Eventf(l.pool, m.VirtualMachine, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "deleted VirtualMachine %s%s", m.Name, why)
	return nil
}
