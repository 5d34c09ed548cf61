package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// The disk of a member is told by its name alone: pool, template and the member's number. So the next member of that number has the same
// one, nobody hands disks out, and two who make members at once cannot give one to two of them.

// diskName is the name of a member's disk of a template.
func diskName(pool, template string, slot int) string { return memberName(pool+"-"+template, slot) }

// resolve puts the member's disks in the place of the templates that its spec names.
func resolve(pool string, slot int, spec *v1alpha1.VirtualMachineSpec) {
	for i := range spec.BlockDeviceRefs {
		spec.BlockDeviceRefs[i].Name = diskName(pool, spec.BlockDeviceRefs[i].Name, slot)
	}
}

// readDisks reads which disks are the pool's.
func (l *look) readDisks(ctx context.Context, from client.Reader, atATime int64) error {
	var list v1alpha1.VirtualDiskList
	for next := ""; ; next = list.Continue {
		list = v1alpha1.VirtualDiskList{}
		err := from.List(ctx, &list, client.InNamespace(l.pool.Namespace), client.MatchingLabels{v1alpha1.LabelPoolUID: string(l.pool.UID)},
			client.UnsafeDisableDeepCopy, client.Limit(atATime), client.Continue(next))
		if err != nil {
			return fmt.Errorf("reading the disks of VirtualMachinePool %s: %w", l.key(), err)
		}
		for i := range list.Items {
			if d := &list.Items[i]; l.has(d) {
				l.disks = append(l.disks, d)
			}
		}
		if list.Continue == "" || atATime == 0 {
			break
		}
	}
	slices.SortFunc(l.disks, func(a, b *v1alpha1.VirtualDisk) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// template gives the template that a disk was made from, nil if there is none any more.
func (l *look) template(d *v1alpha1.VirtualDisk) *v1alpha1.VirtualDiskTemplate {
	templates := l.pool.Spec.VirtualDiskTemplates
	i := slices.IndexFunc(templates, func(t v1alpha1.VirtualDiskTemplate) bool { return t.Name == d.Labels[v1alpha1.LabelDiskTemplate] })
	if i < 0 {
		return nil
	}
	return &templates[i]
}

// retained reports whether a disk without a member is kept for the next one.
func (l *look) retained(d *v1alpha1.VirtualDisk) bool {
	if t := l.template(d); t != nil {
		return t.Reclaim.OnScaleDown == v1alpha1.ReclaimRetain
	}
	return d.Labels[v1alpha1.LabelReclaim] != string(v1alpha1.ReclaimDelete)
}

// used reports whether a machine has the disk or had it. A member gets one that was used before only if it is retained.
func used(d *v1alpha1.VirtualDisk) bool {
	return d.Status.AttachedTo != nil || d.Status.FreeSince != nil
}

// prepareDisks makes the disks of a member that are not there. It tells whether a new member may have them: one that is still to be
// deleted, since an earlier member had it, is waited for.
func (r *Reconciler) prepareDisks(ctx context.Context, l *look, slot int) (ready bool, err error) {
	ready = true
	for i := range l.pool.Spec.VirtualDiskTemplates {
		t := &l.pool.Spec.VirtualDiskTemplates[i]
		if d := l.disk(t.Name, slot); d != nil {
			ready = ready && d.DeletionTimestamp.IsZero() && (!used(d) || l.retained(d))
		} else if err := r.createDisk(ctx, l, t, slot); err != nil {
			return false, err
		}
	}
	return ready, nil
}

// disk gives a member's disk of a template, nil if there is none.
func (l *look) disk(template string, slot int) *v1alpha1.VirtualDisk {
	at, found := slices.BinarySearchFunc(l.disks, diskName(l.pool.Name, template, slot), func(d *v1alpha1.VirtualDisk, name string) int {
		return strings.Compare(d.Name, name)
	})
	if !found {
		return nil
	}
	return l.disks[at]
}

// lacking are the members with the present template whose disks are not all there: the template is new, or somebody deleted one before the
// member had it, and there was nothing on it.
func (l *look) lacking() []member {
	return slices.DeleteFunc(l.staying(), func(m member) bool {
		return m.Labels[v1alpha1.LabelTemplateHash] != l.hash || !slices.ContainsFunc(l.pool.Spec.VirtualDiskTemplates,
			func(t v1alpha1.VirtualDiskTemplate) bool { return l.disk(t.Name, m.slot) == nil })
	})
}

// errForeign is why a member cannot have the disk of its number: somebody else made one of that name.
var errForeign = errors.New("exists but does not belong to this pool")

func (r *Reconciler) createDisk(ctx context.Context, l *look, t *v1alpha1.VirtualDiskTemplate, slot int) error {
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.pool.Namespace, Name: diskName(l.pool.Name, t.Name, slot), Labels: diskLabels(l.pool, t),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l.pool, v1alpha1.GroupVersion.WithKind("VirtualMachinePool"))},
		},
		Spec: *t.Spec.DeepCopy(),
	}
	err := r.Client.Create(ctx, d, client.FieldOwner(manager))
	if apierrors.IsAlreadyExists(err) {
		there := &v1alpha1.VirtualDisk{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(d), there); err != nil {
			return client.IgnoreNotFound(err)
		}
		if l.has(there) { // somebody was faster: the next look sees what it is
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("virtualdisks").GroupResource(), d.Name, err)
		}
		if l.left(there) {
			return r.adopt(ctx, l, there)
		}
		return fmt.Errorf("VirtualDisk %s %w: delete it, or rename the entry of spec.virtualDiskTemplates", d.Name, errForeign)
	}
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	r.Events.Eventf(l.pool, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "VirtualDisk %s was not created: %s", d.Name, err)
	return fmt.Errorf("VirtualDisk %s: %w", d.Name, err)
}

// diskLabels are the labels of a disk of a pool.
func diskLabels(pool *v1alpha1.VirtualMachinePool, t *v1alpha1.VirtualDiskTemplate) map[string]string {
	return map[string]string{
		v1alpha1.LabelPoolUID: string(pool.UID), v1alpha1.LabelPool: pool.Name,
		v1alpha1.LabelDiskTemplate: t.Name, v1alpha1.LabelReclaim: string(t.Reclaim.OnScaleDown),
	}
}

// tend makes disks that members lack, grows those that are smaller than their template, and deletes those that are not kept, and tells
// whether there were any.
func (r *Reconciler) tend(ctx context.Context, l *look) (bool, error) {
	lacking, lagging, spent := l.lacking(), l.lagging(), l.spent()
	for _, m := range lacking {
		if _, err := r.prepareDisks(ctx, l, m.slot); err != nil {
			return true, err
		}
	}
	for _, d := range lagging {
		after, t := d.DeepCopy(), l.template(d)
		after.Labels[v1alpha1.LabelReclaim] = string(t.Reclaim.OnScaleDown)
		if after.Spec.Size.Cmp(t.Spec.Size) < 0 {
			after.Spec.Size = t.Spec.Size
		}
		patch := client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, after, patch, client.FieldOwner(manager)); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("updating VirtualDisk %s from its template: %w", d.Name, err)
		}
	}
	for _, d := range spent {
		// As it was read: one that a machine has taken meanwhile stays.
		of := client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion}
		if err := r.Client.Delete(ctx, d, of); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("deleting VirtualDisk %s: %w", d.Name, err)
		}
		r.Events.Eventf(l.pool, d, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "deleted VirtualDisk %s, which no member uses", d.Name)
	}
	return len(lacking)+len(lagging)+len(spent) > 0, nil
}

// lagging are the disks that are not as their template has them: smaller, or with another word for what becomes of them.
func (l *look) lagging() (all []*v1alpha1.VirtualDisk) {
	for _, d := range l.disks {
		t := l.template(d)
		if t != nil && d.DeletionTimestamp.IsZero() &&
			(d.Spec.Size.Cmp(t.Spec.Size) < 0 || d.Labels[v1alpha1.LabelReclaim] != string(t.Reclaim.OnScaleDown)) {
			all = append(all, d)
		}
	}
	return all
}

// spent are the disks that no member has, and that are not kept for one. The pool is looked at again when the next one's time is up.
func (l *look) spent() (all []*v1alpha1.VirtualDisk) {
	if len(l.disks) == 0 {
		return nil
	}
	slots := map[int]bool{}
	for _, m := range l.members {
		slots[m.slot] = true
	}
	kept := map[string][]*v1alpha1.VirtualDisk{} // by template
	for _, d := range l.disks {
		switch {
		case !d.DeletionTimestamp.IsZero(), d.Status.AttachedTo != nil:
		case l.template(d) != nil && (slots[slotOfDisk(d)] || !used(d) && len(l.members) < l.desired()):
			// for a member that is about to be given it, or to be made
		case !l.retained(d):
			all = append(all, d)
		case l.template(d) != nil:
			kept[d.Labels[v1alpha1.LabelDiskTemplate]] = append(kept[d.Labels[v1alpha1.LabelDiskTemplate]], d)
		}
	}
	for _, t := range l.pool.Spec.VirtualDiskTemplates {
		all = append(all, l.expired(t.Reclaim, kept[t.Name])...)
	}
	return all
}

// expired are those of the disks without a member whose time is up.
func (l *look) expired(reclaim v1alpha1.DiskReclaim, disks []*v1alpha1.VirtualDisk) (all []*v1alpha1.VirtualDisk) {
	if reclaim.TTL == nil {
		return nil
	}
	slices.SortStableFunc(disks, func(a, b *v1alpha1.VirtualDisk) int { return freeSince(b).Compare(freeSince(a)) })
	keep := 0
	if reclaim.Keep != nil {
		keep = int(*reclaim.Keep)
	}
	for _, d := range disks[min(keep, len(disks)):] {
		if left := freeSince(d).Add(reclaim.TTL.Duration).Sub(l.now); left > 0 {
			l.later(left)
		} else {
			all = append(all, d)
		}
	}
	return all
}

// freeSince is when the clock of a disk without a member began: with its creation, if no machine ever had it.
func freeSince(d *v1alpha1.VirtualDisk) time.Time {
	if d.Status.FreeSince != nil {
		return d.Status.FreeSince.Time
	}
	return d.CreationTimestamp.Time
}

// slotOfDisk gives the number of the member that a disk is for.
func slotOfDisk(d *v1alpha1.VirtualDisk) int {
	return slotOf(d.Labels[v1alpha1.LabelPool]+"-"+d.Labels[v1alpha1.LabelDiskTemplate], d.Name)
}
