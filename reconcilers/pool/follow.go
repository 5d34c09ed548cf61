package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A machine keeps the release of the VSphereTemplate that it was made from. So a pool that follows its VSphereTemplate deletes members of
// another release than the one that is ready, and makes them again as it does with every member that is gone.

// readRelease reads which release is ready, after the members were read: what of them is of another one then is so whatever came first.
// Nothing is ready while the VSphereTemplate is being replaced or deleted, or if it is not the one that members could be made from.
func (l *look) readRelease(ctx context.Context, from client.Reader, _ int64) error {
	ref := l.pool.Spec.Follows()
	if ref == nil {
		return nil
	}
	t := &v1alpha1.VSphereTemplate{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: l.pool.Namespace, Name: ref.Name}, t); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading VSphereTemplate %s: %w", ref.Name, err)
	}
	domain := t.Spec.Meant(ref.FailureDomain)
	if domain != nil && t.DeletionTimestamp.IsZero() && t.Spec.ServerRef == l.pool.Spec.VirtualMachineTemplate.Spec.Runtime.VSphere.ServerRef {
		l.release = t.ReadyIn(domain.Name)
	}
	return nil
}

// stale reports whether the member was made from another release than the one that is ready. Of what it was made from may be nothing known.
func (l *look) stale(m member) bool {
	from := m.Status.Template
	return l.release != "" && from != nil && from.Name == l.pool.Spec.Follows().Name && from.Release != l.release
}

// allStale are the members that are to be replaced, those first that were chosen before.
func (l *look) allStale() []member {
	all := slices.DeleteFunc(l.staying(), func(m member) bool { return !l.stale(m) })
	slices.SortStableFunc(all, func(a, b member) int { return cmp.Compare(rank(!l.chosen(a)), rank(!l.chosen(b))) })
	return all
}

// approves reports whether members are restarted, and so replaced, without somebody who says so.
func (l *look) approves() bool {
	return l.pool.Spec.VirtualMachineTemplate.Spec.RestartApprovalMode == v1alpha1.RestartAutomatic
}

// turn is members of which so many may be replaced now.
type turn struct {
	of   []member
	room int
}

// turns are the members that may be replaced now. One that is available needs room for another that is not. Of those that are not available
// anyway as many may be replaced as leave, with those that are missing or not available for other reasons, no more than that: they could
// run again in a moment. While there are too many members nobody is replaced, since none would be made in its place.
func (l *look) turns() (turns []turn) {
	if !l.approves() || len(l.staying()) > l.desired() {
		return nil
	}
	var down, up []member
	for _, m := range l.allStale() {
		if m.available() {
			up = append(up, m)
		} else {
			down = append(down, m)
		}
	}
	room := l.mayBeUnavailable() - l.unavailable()
	for _, t := range []turn{{of: down, room: room + len(down)}, {of: up, room: room}} {
		if t.room = min(t.room, most); len(t.of) > 0 && t.room > 0 {
			turns = append(turns, t)
		}
	}
	return turns
}

// replace deletes members of another release than the one that is ready, and tells whether there were any. What keeps others is in l.held.
func (r *Reconciler) replace(ctx context.Context, l *look) (bool, error) {
	turns := l.turns()
	if len(turns) == 0 {
		return false, nil
	}
	leases, err := r.leases(ctx, l)
	if err != nil {
		return false, err
	}
	var all []member
	for _, t := range turns {
		chosen, kept, err := r.choose(ctx, l, leases, t.of, t.room)
		if err != nil {
			return false, fmt.Errorf("choosing members of VirtualMachinePool %s to replace: %w", l.key(), err)
		}
		if len(chosen) < t.room { // and nobody could be in their place
			l.held = append(l.held, kept...)
		}
		all = append(all, chosen...)
	}
	if len(l.held) > 0 {
		l.later(blockedRetry)
	}
	return r.giveUp(ctx, l, all, func(m member) string {
		return fmt.Sprintf(", created from release %s, to replace it with release %s of VSphereTemplate %s",
			m.Status.Template.Release, l.release, m.Status.Template.Name)
	})
}

// byFollowed is the index of VirtualMachinePools by the VSphereTemplates that they follow.
const byFollowed = "followed"

func followedKeys(o client.Object) []string {
	pool, is := o.(*v1alpha1.VirtualMachinePool)
	if !is || pool.Spec.Follows() == nil {
		return nil
	}
	return []string{pool.Spec.Follows().Name}
}

// readyChanged drops what changes nothing for a pool, above all how much of an import is done.
var readyChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VSphereTemplate)
	now, is := e.ObjectNew.(*v1alpha1.VSphereTemplate)
	return was && is && !slices.Equal(ready(before), ready(now))
}}

// ready are the releases that are ready in the failure domains.
func ready(t *v1alpha1.VSphereTemplate) (all []string) {
	for i := range t.Status.FailureDomains {
		domain := t.Status.FailureDomains[i].Name
		all = append(all, domain, t.ReadyIn(domain))
	}
	return all
}

// followers gives the pools that follow a VSphereTemplate, by the cache.
func (r *Reconciler) followers(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var list v1alpha1.VirtualMachinePoolList
	if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{byFollowed: o.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "finding the VirtualMachinePools of a template", "VSphereTemplate", o.GetName())
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
