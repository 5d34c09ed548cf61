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
func (r *Reconciler) remove(ctx context.Context, v *view) (bool, error) {
	victims, err := r.victims(ctx, v)
	if err != nil {
		return false, fmt.Errorf("choosing members of VirtualMachinePool %s to delete: %w", v.key(), err)
	}
	if len(v.blocked) > 0 {
		v.requeueIn(blockedRetry)
	}
	return r.deleteMembers(ctx, v, victims, func(member) string { return "" })
}

// deleteMembers persists which members are about to be deleted and deletes them. It reports whether there were any.
// why returns the end of the event's message.
func (r *Reconciler) deleteMembers(ctx context.Context, v *view, victims []member, why func(member) string) (bool, error) {
	removing := make([]v1alpha1.ScaleDownTarget, len(victims))
	for i, m := range victims {
		removing[i] = m.asTarget()
	}
	v.pool.Status.Removing = removing
	if len(victims) == 0 {
		return false, nil
	}
	if !slices.Equal(removing, v.before.Removing) {
		if err := r.save(ctx, v); err != nil {
			return false, err
		}
	}
	return true, inBatches(ctx, len(victims), func(ctx context.Context, i int) error { return r.delete(ctx, v, victims[i], why(victims[i])) })
}

// victims returns the members to delete now: the targeted ones, and others while there are too many. Members that
// cannot be deleted are in l.blocked.
func (r *Reconciler) victims(ctx context.Context, v *view) (victims []member, err error) {
	named := v.targeted()
	for _, m := range named[:min(len(named), maxPerPass)] {
		kept, err := r.denied(ctx, m)
		if err != nil {
			return nil, err
		}
		if kept != nil {
			v.blocked = append(v.blocked, *kept)
			continue
		}
		victims = append(victims, m)
	}
	surplus := len(v.remaining()) - len(named) - v.desired()
	if surplus <= 0 {
		return victims, nil
	}
	if v.pool.Spec.ScaleDownPolicy == v1alpha1.ScaleDownExplicit {
		v.blocked = append(v.blocked, blocked{reason: v1alpha1.ReasonNobodyNamed, message: fmt.Sprintf(
			"surplus members: %d; scaleDownPolicy Explicit removes only named members (%s)",
			surplus, commands.Line("kubectl", "sallyport", "scale-down", v.pool.Name, "-n", v.pool.Namespace, "--vm", "NAME"))})
		return victims, nil
	}
	leases, err := r.leases(ctx, v)
	if err != nil {
		return nil, err
	}
	others, kept, err := r.choose(ctx, v, leases, v.candidates(), min(surplus, maxPerPass-len(victims)))
	if len(others) < surplus { // no other member could be chosen instead
		v.blocked = append(v.blocked, kept...)
	}
	return append(victims, others...), err
}

// choose returns up to count members, in their order, that neither a Lease nor a policy protects, and why the members
// skipped on the way are protected.
func (r *Reconciler) choose(
	ctx context.Context, v *view, leases map[types.UID]*coordinationv1.Lease, members []member, count int,
) (chosen []member, kept []blocked, err error) {
	for _, m := range members {
		if len(chosen) == count {
			break
		}
		reason := v.busyReason(m, leases[m.UID])
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
func (v *view) candidates() []member {
	named := v.targeted()
	all := slices.DeleteFunc(v.remaining(), func(m member) bool { return slices.Contains(named, m) })
	order := -1
	if v.pool.Spec.ScaleDownPolicy == v1alpha1.ScaleDownOldestFirst {
		order = 1
	}
	slices.SortStableFunc(all, func(a, b member) int {
		return cmp.Or(
			cmp.Compare(sortKey(!v.alreadyChosen(a)), sortKey(!v.alreadyChosen(b))), cmp.Compare(sortKey(!a.lost()), sortKey(!b.lost())),
			cmp.Compare(sortKey(a.ready()), sortKey(b.ready())),
			order*a.CreationTimestamp.Compare(b.CreationTimestamp.Time), order*cmp.Compare(a.slot, b.slot), cmp.Compare(a.Name, b.Name),
		)
	})
	return all
}

// alreadyChosen reports whether the member is in the persisted list of members to delete, possibly written by a
// process that has died since.
func (v *view) alreadyChosen(m member) bool { return slices.Contains(v.before.Removing, m.asTarget()) }

// sortKey returns the sort key of a condition: false sorts first.
func sortKey(last bool) int {
	if last {
		return 1
	}
	return 0
}

// leases reads the Leases that mark members as busy, by the UID of the member. It is called after the members were
// read: a later mark changes the member's resourceVersion, so that its deletion fails.
func (r *Reconciler) leases(ctx context.Context, v *view) (map[types.UID]*coordinationv1.Lease, error) {
	found := map[types.UID]*coordinationv1.Lease{}
	for next := ""; ; {
		var list coordinationv1.LeaseList
		err := r.Live.List(ctx, &list, client.InNamespace(v.pool.Namespace), client.HasLabels{v1alpha1.LabelBusyMachine},
			client.Limit(page), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("reading the Leases of busy members: %w", err)
		}
		for i := range list.Items {
			busy.Note(found, &list.Items[i], v.now)
		}
		if next = list.Continue; next == "" {
			return found, nil
		}
	}
}

// busyReason returns the reason why a Lease protects the member, and schedules a pass for its end.
func (v *view) busyReason(m member, lease *coordinationv1.Lease) *blocked {
	if lease == nil {
		return nil
	}
	until := busy.Until(lease, v.now)
	v.requeueIn(until.Sub(v.now))
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
func (r *Reconciler) delete(ctx context.Context, v *view, m member, why string) error {
	err := r.Client.Delete(ctx, m.DeepCopy(), client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return err
	case err != nil:
		r.Events.Eventf(v.pool, m.VirtualMachine, corev1.EventTypeWarning, "FailedDelete", "Delete", "VirtualMachine %s was not deleted: %s", m.Name, err)
		return fmt.Errorf("deleting VirtualMachine %s: %w", m.Name, err)
	}
	r.Events.Eventf(v.pool, m.VirtualMachine, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "deleted VirtualMachine %s%s", m.Name, why)
	return nil
}
