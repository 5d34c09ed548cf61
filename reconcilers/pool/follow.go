package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// A machine keeps the release of the VSphereTemplate that it was created from. A pool that follows its
// VSphereTemplate therefore deletes members of another release than the ready one; missing members are created as
// usual.

// readRelease reads the ready release, after the members, so that a member of another release really is outdated.
// There is no ready release while the VSphereTemplate is being replaced or deleted, or if it is on another server
// than the members.
func (v *view) readRelease(ctx context.Context, from client.Reader, _ int64) error {
	ref := v.pool.Spec.Follows()
	if ref == nil {
		return nil
	}
	t := &v1alpha1.VSphereTemplate{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: v.pool.Namespace, Name: ref.Name}, t); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading VSphereTemplate %s: %w", ref.Name, err)
	}
	domain := t.Spec.Meant(ref.FailureDomain)
	if domain != nil && t.DeletionTimestamp.IsZero() && t.Spec.ServerRef == v.pool.Spec.VirtualMachineTemplate.Spec.Runtime.VSphere.ServerRef {
		v.release = t.ReadyIn(domain.Name)
	}
	return nil
}

// otherRelease reports whether the member was created from another release than the ready one. A member of unknown
// origin is not.
func (v *view) otherRelease(m member) bool {
	from := m.Status.Template
	return v.release != "" && from != nil && from.Name == v.pool.Spec.Follows().Name && from.Release != v.release
}

// staleMembers returns the members to replace, those chosen earlier first.
func (v *view) staleMembers() []member {
	all := slices.DeleteFunc(v.remaining(), func(m member) bool { return !v.otherRelease(m) })
	slices.SortStableFunc(all, func(a, b member) int { return cmp.Compare(sortKey(!v.alreadyChosen(a)), sortKey(!v.alreadyChosen(b))) })
	return all
}

// restartsAutomatically reports whether members may be restarted, and thus replaced, without approval.
func (v *view) restartsAutomatically() bool {
	return v.pool.Spec.VirtualMachineTemplate.Spec.RestartApprovalMode == v1alpha1.RestartAutomatic
}

// batch is a list of members of which up to room may be replaced now.
type batch struct {
	members []member
	room    int
}

// batches returns the members that may be replaced now. An available member needs room in maxUnavailable. Members
// that are unavailable anyway may be replaced as far as the other unavailable and missing members leave room, since
// they could become available at any moment. Nothing is replaced while there are too many members, since no
// replacement would be created.
func (v *view) batches() (batches []batch) {
	if !v.restartsAutomatically() || len(v.remaining()) > v.desired() {
		return nil
	}
	var down, up []member
	for _, m := range v.staleMembers() {
		if m.available() {
			up = append(up, m)
		} else {
			down = append(down, m)
		}
	}
	room := v.maxUnavailable() - v.unavailable()
	for _, t := range []batch{{members: down, room: room + len(down)}, {members: up, room: room}} {
		if t.room = min(t.room, maxPerPass); len(t.members) > 0 && t.room > 0 {
			batches = append(batches, t)
		}
	}
	return batches
}

// replace deletes members of another release than the ready one, and reports whether there were any. Members that
// cannot be replaced are in l.notReplaced.
func (r *Reconciler) replace(ctx context.Context, v *view) (bool, error) {
	turns := v.batches()
	if len(turns) == 0 {
		return false, nil
	}
	leases, err := r.leases(ctx, v)
	if err != nil {
		return false, err
	}
	var all []member
	for _, t := range turns {
		chosen, kept, err := r.choose(ctx, v, leases, t.members, t.room)
		if err != nil {
			return false, fmt.Errorf("choosing members of VirtualMachinePool %s to replace: %w", v.key(), err)
		}
		if len(chosen) < t.room { // no other member could be chosen instead
			v.notReplaced = append(v.notReplaced, kept...)
		}
		all = append(all, chosen...)
	}
	if len(v.notReplaced) > 0 {
		v.requeueIn(blockedRetry)
	}
	return r.deleteMembers(ctx, v, all, func(m member) string {
		return fmt.Sprintf(", created from release %s, to replace it with release %s of VSphereTemplate %s",
			m.Status.Template.Release, v.release, m.Status.Template.Name)
	})
}

// byFollowed indexes VirtualMachinePools by the VSphereTemplate that they follow.
const byFollowed = "followed"

func followedKeys(o client.Object) []string {
	pool, is := o.(*v1alpha1.VirtualMachinePool)
	if !is || pool.Spec.Follows() == nil {
		return nil
	}
	return []string{pool.Spec.Follows().Name}
}

// readyChanged drops updates that do not matter to a pool, above all import progress.
var readyChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VSphereTemplate)
	now, is := e.ObjectNew.(*v1alpha1.VSphereTemplate)
	return was && is && !slices.Equal(readyReleases(before), readyReleases(now))
}}

func readyReleases(t *v1alpha1.VSphereTemplate) (all []string) {
	for i := range t.Status.FailureDomains {
		domain := t.Status.FailureDomains[i].Name
		all = append(all, domain, t.ReadyIn(domain))
	}
	return all
}

func (r *Reconciler) poolsFollowing(ctx context.Context, o client.Object) []reconcile.Request {
	return watch.Requests(ctx, r.Client, &v1alpha1.VirtualMachinePoolList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{byFollowed: o.GetName()})
}
