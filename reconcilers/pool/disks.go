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

// The name of a member's disk follows from pool, template and the member's number. So the next member with that
// number gets the same disk, without any assignment that two concurrent writers could make twice.

func diskName(pool, template string, slot int) string { return memberName(pool+"-"+template, slot) }

// resolveDisks replaces the template names in a member's spec with the names of its disks.
func resolveDisks(pool string, slot int, spec *v1alpha1.VirtualMachineSpec) {
	for i := range spec.BlockDeviceRefs {
		spec.BlockDeviceRefs[i].Name = diskName(pool, spec.BlockDeviceRefs[i].Name, slot)
	}
}

func (v *view) readDisks(ctx context.Context, from client.Reader, limit int64) error {
	var list v1alpha1.VirtualDiskList
	for next := ""; ; next = list.Continue {
		list = v1alpha1.VirtualDiskList{}
		err := from.List(ctx, &list, client.InNamespace(v.pool.Namespace), client.MatchingLabels{v1alpha1.LabelPoolUID: string(v.pool.UID)},
			client.UnsafeDisableDeepCopy, client.Limit(limit), client.Continue(next))
		if err != nil {
			return fmt.Errorf("reading the disks of VirtualMachinePool %s: %w", v.key(), err)
		}
		for i := range list.Items {
			if d := &list.Items[i]; v.owns(d) {
				v.disks = append(v.disks, d)
			}
		}
		if list.Continue == "" || limit == 0 {
			break
		}
	}
	slices.SortFunc(v.disks, func(a, b *v1alpha1.VirtualDisk) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// templateOf returns the template of a disk, or nil if the pool no longer has it.
func (v *view) templateOf(d *v1alpha1.VirtualDisk) *v1alpha1.VirtualDiskTemplate {
	templates := v.pool.Spec.VirtualDiskTemplates
	i := slices.IndexFunc(templates, func(t v1alpha1.VirtualDiskTemplate) bool { return t.Name == d.Labels[v1alpha1.LabelDiskTemplate] })
	if i < 0 {
		return nil
	}
	return &templates[i]
}

// retained reports whether a disk without a member is kept for the next one.
func (v *view) retained(d *v1alpha1.VirtualDisk) bool {
	if t := v.templateOf(d); t != nil {
		return t.Reclaim.OnScaleDown == v1alpha1.ReclaimRetain
	}
	return d.Labels[v1alpha1.LabelReclaim] != string(v1alpha1.ReclaimDelete)
}

// wasUsed reports whether a machine has or had the disk. Another member gets such a disk only if it is retained.
func wasUsed(d *v1alpha1.VirtualDisk) bool {
	return d.Status.AttachedTo != nil || d.Status.FreeSince != nil
}

// prepareDisks creates the missing disks of a member, and reports whether a new member may use its disks: a disk of
// an earlier member that is not retained must be deleted first.
func (r *Reconciler) prepareDisks(ctx context.Context, v *view, slot int) (ready bool, err error) {
	ready = true
	for i := range v.pool.Spec.VirtualDiskTemplates {
		t := &v.pool.Spec.VirtualDiskTemplates[i]
		if d := v.disk(t.Name, slot); d != nil {
			ready = ready && d.DeletionTimestamp.IsZero() && (!wasUsed(d) || v.retained(d))
		} else if err := r.createDisk(ctx, v, t, slot); err != nil {
			return false, err
		}
	}
	return ready, nil
}

// disk returns a member's disk for a template, or nil.
func (v *view) disk(template string, slot int) *v1alpha1.VirtualDisk {
	at, found := slices.BinarySearchFunc(v.disks, diskName(v.pool.Name, template, slot), func(d *v1alpha1.VirtualDisk, name string) int {
		return strings.Compare(d.Name, name)
	})
	if !found {
		return nil
	}
	return v.disks[at]
}

// withoutDisks returns the members with the current template that lack a disk: the template is new, or the disk was
// deleted before the member got it, when it was still empty.
func (v *view) withoutDisks() []member {
	return slices.DeleteFunc(v.remaining(), func(m member) bool {
		return m.Labels[v1alpha1.LabelTemplateHash] != v.hash || !slices.ContainsFunc(v.pool.Spec.VirtualDiskTemplates,
			func(t v1alpha1.VirtualDiskTemplate) bool { return v.disk(t.Name, m.slot) == nil })
	})
}

// errForeign means that an object that is not the pool's has the name of a member's disk.
var errForeign = errors.New("exists but does not belong to this pool")

func (r *Reconciler) createDisk(ctx context.Context, v *view, t *v1alpha1.VirtualDiskTemplate, slot int) error {
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.pool.Namespace, Name: diskName(v.pool.Name, t.Name, slot), Labels: diskLabels(v.pool, t),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.pool, v1alpha1.GroupVersion.WithKind("VirtualMachinePool"))},
		},
		Spec: *t.Spec.DeepCopy(),
	}
	err := r.Client.Create(ctx, d, client.FieldOwner(manager))
	if apierrors.IsAlreadyExists(err) {
		existing := &v1alpha1.VirtualDisk{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(d), existing); err != nil {
			return client.IgnoreNotFound(err)
		}
		if v.owns(existing) { // created concurrently: the next pass reads it
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("virtualdisks").GroupResource(), d.Name, err)
		}
		if v.orphaned(existing) {
			return r.adopt(ctx, v, existing)
		}
		return fmt.Errorf("VirtualDisk %s %w: delete it, or rename the entry of spec.virtualDiskTemplates", d.Name, errForeign)
	}
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	r.Events.Eventf(v.pool, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "VirtualDisk %s was not created: %s", d.Name, err)
	return fmt.Errorf("VirtualDisk %s: %w", d.Name, err)
}

func diskLabels(pool *v1alpha1.VirtualMachinePool, t *v1alpha1.VirtualDiskTemplate) map[string]string {
	return map[string]string{
		v1alpha1.LabelPoolUID: string(pool.UID), v1alpha1.LabelPool: pool.Name,
		v1alpha1.LabelDiskTemplate: t.Name, v1alpha1.LabelReclaim: string(t.Reclaim.OnScaleDown),
	}
}

// reconcileDisks creates missing disks, updates those that differ from their template, and deletes those that are not
// needed. It reports whether there were any.
func (r *Reconciler) reconcileDisks(ctx context.Context, v *view) (bool, error) {
	withoutDisks, outdated, unneeded := v.withoutDisks(), v.outdatedDisks(), v.unneededDisks()
	for _, m := range withoutDisks {
		if _, err := r.prepareDisks(ctx, v, m.slot); err != nil {
			return true, err
		}
	}
	for _, d := range outdated {
		after, t := d.DeepCopy(), v.templateOf(d)
		after.Labels[v1alpha1.LabelReclaim] = string(t.Reclaim.OnScaleDown)
		if after.Spec.Size.Cmp(t.Spec.Size) < 0 {
			after.Spec.Size = t.Spec.Size
		}
		patch := client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, after, patch, client.FieldOwner(manager)); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("updating VirtualDisk %s from its template: %w", d.Name, err)
		}
	}
	for _, d := range unneeded {
		// With the resourceVersion: a disk that a machine has reserved meanwhile stays.
		unchanged := client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion}
		if err := r.Client.Delete(ctx, d, unchanged); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("deleting VirtualDisk %s: %w", d.Name, err)
		}
		r.Events.Eventf(v.pool, d, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "deleted VirtualDisk %s, which no member uses", d.Name)
	}
	return len(withoutDisks)+len(outdated)+len(unneeded) > 0, nil
}

// outdatedDisks returns disks whose size or reclaim label differs from their template.
func (v *view) outdatedDisks() (all []*v1alpha1.VirtualDisk) {
	for _, d := range v.disks {
		t := v.templateOf(d)
		if t != nil && d.DeletionTimestamp.IsZero() &&
			(d.Spec.Size.Cmp(t.Spec.Size) < 0 || d.Labels[v1alpha1.LabelReclaim] != string(t.Reclaim.OnScaleDown)) {
			all = append(all, d)
		}
	}
	return all
}

// unneededDisks returns the disks without a member that are not kept for another one. It schedules a pass for when
// the next disk expires.
func (v *view) unneededDisks() (all []*v1alpha1.VirtualDisk) {
	if len(v.disks) == 0 {
		return nil
	}
	slots := map[int]bool{}
	for _, m := range v.members {
		slots[m.slot] = true
	}
	retained := map[string][]*v1alpha1.VirtualDisk{} // by template
	for _, d := range v.disks {
		switch {
		case !d.DeletionTimestamp.IsZero(), d.Status.AttachedTo != nil:
		case v.templateOf(d) != nil && (slots[slotOfDisk(d)] || !wasUsed(d) && len(v.members) < v.desired()):
			// kept for a member that is about to get it or to be created
		case !v.retained(d):
			all = append(all, d)
		case v.templateOf(d) != nil:
			retained[d.Labels[v1alpha1.LabelDiskTemplate]] = append(retained[d.Labels[v1alpha1.LabelDiskTemplate]], d)
		}
	}
	for _, t := range v.pool.Spec.VirtualDiskTemplates {
		all = append(all, v.expired(t.Reclaim, retained[t.Name])...)
	}
	return all
}

// expired returns the disks without a member that exceed the limits of the reclaim policy.
func (v *view) expired(reclaim v1alpha1.DiskReclaim, disks []*v1alpha1.VirtualDisk) (all []*v1alpha1.VirtualDisk) {
	if reclaim.TTL == nil {
		return nil
	}
	slices.SortStableFunc(disks, func(a, b *v1alpha1.VirtualDisk) int { return freeSince(b).Compare(freeSince(a)) })
	keep := 0
	if reclaim.Keep != nil {
		keep = int(*reclaim.Keep)
	}
	for _, d := range disks[min(keep, len(disks)):] {
		if left := freeSince(d).Add(reclaim.TTL.Duration).Sub(v.now); left > 0 {
			v.requeueIn(left)
		} else {
			all = append(all, d)
		}
	}
	return all
}

// freeSince returns since when a disk has no member: since its creation, if no machine ever had it.
func freeSince(d *v1alpha1.VirtualDisk) time.Time {
	if d.Status.FreeSince != nil {
		return d.Status.FreeSince.Time
	}
	return d.CreationTimestamp.Time
}

// slotOfDisk returns the number of the member that a disk belongs to.
func slotOfDisk(d *v1alpha1.VirtualDisk) int {
	return slotOf(d.Labels[v1alpha1.LabelPool]+"-"+d.Labels[v1alpha1.LabelDiskTemplate], d.Name)
}
