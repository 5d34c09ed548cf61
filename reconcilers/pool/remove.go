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

// blocked is the reason why a member cannot be deleted or replaced.
type blocked struct {
	reason  v1alpha1.ConditionReason
	message string
}

// remove deletes the targeted members and surplus ones, and reports whether there were any.
func (r *Reconciler) remove(ctx context.Context, l *view) (bool, error) {
	victims, err := r.victims(ctx, l)
	if err != nil {
		return false, fmt.Errorf("choosing members of VirtualMachinePool %s to delete: %w", l.key(), err)
	}
	if len(l.blocked) > 0 {
		l.requeueIn(blockedRetry)
	}
	return r.deleteMembers(ctx, l, victims, func(member) string { return "" })
}

// deleteMembers persists which members are about to be deleted and deletes them. It reports whether there were any.
// why returns the end of the event's message.
func (r *Reconciler) deleteMembers(ctx context.Context, l *view, victims []member, why func(member) string) (bool, error) {
	removing := make([]v1alpha1.ScaleDownTarget, len(victims))
	for i, m := range victims {
		removing[i] = m.asTarget()
	}
	l.pool.Status.Removing = removing
	if len(victims) == 0 {
		return false, nil
	}
	if !slices.Equal(removing, l.before.Removing) {
		if err := r.save(ctx, l); err != nil {
			return false, err
		}
	}
	return true, inBatches(ctx, len(victims), func(ctx context.Context, i int) error { return r.delete(ctx, l, victims[i], why(victims[i])) })
}

// victims returns the members to delete now: the targeted ones, and others while there are too many. Members that
// cannot be deleted are in l.blocked.
func (r *Reconciler) victims(ctx context.Context, l *view) (victims []member, err error) {
	named := l.targeted()
	for _, m := range named[:min(len(named), maxPerPass)] {
		kept, err := r.denied(ctx, m)
		if err != nil {
			return nil, err
		}
		if kept != nil {
			l.blocked = append(l.blocked, *kept)
			continue
		}
		victims = append(victims, m)
	}
	surplus := len(l.remaining()) - len(named) - l.desired()
	if surplus <= 0 {
		return victims, nil
	}
	if l.pool.Spec.ScaleDownPolicy == v1alpha1.ScaleDownExplicit {
		l.blocked = append(l.blocked, blocked{reason: v1alpha1.ReasonNobodyNamed, message: fmt.Sprintf(
			"surplus members: %d; scaleDownPolicy Explicit removes only named members (%s)",
			surplus, commands.Line("kubectl", "sallyport", "scale-down", l.pool.Name, "-n", l.pool.Namespace, "--vm", "NAME"))})
		return victims, nil
	}
	leases, err := r.leases(ctx, l)
	if err != nil {
		return nil, err
	}
	others, kept, err := r.choose(ctx, l, leases, l.candidates(), min(surplus, maxPerPass-len(victims)))
	if len(others) < surplus { // no other member could be chosen instead
		l.blocked = append(l.blocked, kept...)
	}
	return append(victims, others...), err
}

// choose returns up to count members, in their order, that neither a Lease nor a policy protects, and why the members
// skipped on the way are protected.
func (r *Reconciler) choose(
	ctx context.Context, l *view, leases map[types.UID]*coordinationv1.Lease, members []member, count int,
) (chosen []member, kept []blocked, err error) {
	for _, m := range members {
		if len(chosen) == count {
			break
		}
		reason := l.busyReason(m, leases[m.UID])
		if reason == nil {
			if reason, err = r.denied(ctx, m); err != nil {
				return nil, nil, err
			}
		}
		if reason == nil {
			chosen = append(chosen, m)
		} else {
			kept = append(kept, *reason)
		}
	}
	return chosen, kept, nil
}

// candidates returns the members that may be deleted without being targeted, in the order of deletion: chosen
// earlier, lost, not running (such as paused), then as the scale-down policy says.
func (l *view) candidates() []member {
	named := l.targeted()
	all := slices.DeleteFunc(l.remaining(), func(m member) bool { return slices.Contains(named, m) })
	order := -1
	if l.pool.Spec.ScaleDownPolicy == v1alpha1.ScaleDownOldestFirst {
		order = 1
	}
	slices.SortStableFunc(all, func(a, b member) int {
		return cmp.Or(
			cmp.Compare(sortKey(!l.alreadyChosen(a)), sortKey(!l.alreadyChosen(b))), cmp.Compare(sortKey(!a.lost()), sortKey(!b.lost())),
			cmp.Compare(sortKey(a.ready()), sortKey(b.ready())),
			order*a.CreationTimestamp.Compare(b.CreationTimestamp.Time), order*cmp.Compare(a.slot, b.slot), cmp.Compare(a.Name, b.Name),
		)
	})
	return all
}

// alreadyChosen reports whether the member is in the persisted list of members to delete, possibly written by a
// process that has died since.
func (l *view) alreadyChosen(m member) bool { return slices.Contains(l.before.Removing, m.asTarget()) }

// sortKey returns the sort key of a condition: false sorts first.
func sortKey(last bool) int {
	if last {
		return 1
	}
	return 0
}

// leases reads the Leases that mark members as busy, by the UID of the member. It is called after the members were
// read: a later mark changes the member's resourceVersion, so that its deletion fails.
func (r *Reconciler) leases(ctx context.Context, l *view) (map[types.UID]*coordinationv1.Lease, error) {
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

// busyReason returns the reason why a Lease protects the member, and schedules a pass for its end.
func (l *view) busyReason(m member, lease *coordinationv1.Lease) *blocked {
	if lease == nil {
		return nil
	}
	until := busy.Until(lease, l.now)
	l.requeueIn(until.Sub(l.now))
	return &blocked{reason: v1alpha1.ReasonMembersBusy, message: fmt.Sprintf("%s is busy with %s until %s",
		m.Name, v1alpha1.Cut(busy.Holder(lease), 200), until.UTC().Format(time.RFC3339))}
}

// denied returns the reason why a policy protects the member, found with a dry-run deletion.
func (r *Reconciler) denied(ctx context.Context, m member) (*blocked, error) {
	err := r.Client.Delete(ctx, m.DeepCopy(), client.Preconditions{UID: &m.UID}, client.DryRunAll)
	switch {
	case apierrors.IsForbidden(err):
		return &blocked{reason: v1alpha1.ReasonDeletionRefused, message: fmt.Sprintf("%s: %s", m.Name, v1alpha1.Cut(err.Error(), 400))}, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, and another one may have its name
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("checking whether VirtualMachine %s can be deleted: %w", m.Name, err)
	}
	return nil, nil
}

// delete deletes a member with its resourceVersion and records an event. A member that has changed since is read
// again.
func (r *Reconciler) delete(ctx context.Context, l *view, m member, why string) error {
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
