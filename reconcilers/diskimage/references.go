package diskimage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

const (
	// listed limits the users in a status, named those in a message.
	listed, named = 20, 5
	// page is the size of a page of a live list.
	page = 100
	// gatherPeriod is how long changes of references are collected, so that many disks at once cause few passes.
	gatherPeriod = time.Second
	// slow is how long the deletion of an image's object may take before the image's deletion counts as blocked.
	slow = time.Minute
)

// deletionBlock is the reason why a requested deletion is blocked.
type deletionBlock struct {
	reason  v1alpha1.ConditionReason
	message string
}

// usedImage returns the index key of a disk: the UID of the image that it is copied from.
func usedImage(o client.Object) []string {
	if d, is := o.(*v1alpha1.VirtualDisk); is && d.Status.Image != nil {
		return []string{string(d.Status.Image.UID)}
	}
	return nil
}

// onDisks enqueues the image of a disk when the disk begins or ceases to use it.
func onDisks() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(o client.Object, q queue) {
		if d, is := o.(*v1alpha1.VirtualDisk); is && d.Status.Image != nil {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: d.Status.Image.Namespace, Name: d.Status.Image.Name}}, gatherPeriod)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !slices.Equal(usedImage(e.ObjectOld), usedImage(e.ObjectNew)) {
				enqueue(e.ObjectOld, q)
				enqueue(e.ObjectNew, q)
			}
		},
	}
}

// count counts the disks that reference the image, from the cache.
func (r *Reconciler) count(ctx context.Context, v *view) error {
	var disks v1alpha1.VirtualDiskList
	err := r.Client.List(ctx, &disks, client.MatchingFields{v1alpha1.FieldUsedDiskImage: string(v.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the disks that use VMDiskImage %s: %w", v.Name, err)
	}
	v.setReferences(disks.Items)
	return nil
}

// unused reports whether no disk references the image, past the cache. A disk persists its reference before it reads
// the image live: either this list contains the disk, or the disk reads an image that is being deleted.
func (r *Reconciler) unused(ctx context.Context, v *view) (bool, error) {
	if v.Status.References.Count > 0 {
		return false, nil
	}
	options := &client.ListOptions{FieldSelector: fields.OneTermEqualSelector(v1alpha1.FieldUsedDiskImage, string(v.UID)), Limit: page}
	for {
		var disks v1alpha1.VirtualDiskList
		if err := r.Live.List(ctx, &disks, options); err != nil {
			return false, fmt.Errorf("listing the disks that use VMDiskImage %s: %w", v.Name, err)
		}
		if len(disks.Items) > 0 {
			v.setReferences(disks.Items)
			return false, nil
		}
		if options.Continue = disks.Continue; options.Continue == "" {
			return true, nil
		}
	}
}

// released reports whether the data of a deleted image may be deleted, and otherwise reports the disks that reference
// it.
func (r *Reconciler) released(ctx context.Context, v *view) (bool, error) {
	unused, err := r.unused(ctx, v)
	if err != nil || unused {
		return unused, err
	}
	list := commands.Line("kubectl", "get", "virtualdisks", "--all-namespaces", "--field-selector", v1alpha1.FieldUsedDiskImage+"="+string(v.UID))
	v.blocks(v1alpha1.ReasonImageReferenced, fmt.Sprintf("the image is used by %s; it is deleted once they are deleted; to list the disks: %s", usersText(v.Status.References), list))
	v.again = lastRetry
	return false, nil
}

// setReferences writes the users of the image into its status.
func (v *view) setReferences(disks []v1alpha1.VirtualDisk) {
	refs := &v1alpha1.VMDiskImageReferences{Count: int32(len(disks))}
	for i := range disks {
		if disks[i].Namespace != v.Namespace {
			refs.Elsewhere++
			continue
		}
		refs.Users = append(refs.Users, userOf(&disks[i]))
	}
	slices.SortFunc(refs.Users, func(a, b v1alpha1.VMDiskImageUser) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind), strings.Compare(string(a.UID), string(b.UID)))
	})
	refs.Users = slices.Compact(refs.Users)
	refs.Users = slices.Clip(refs.Users[:min(len(refs.Users), listed)])
	v.Status.References = refs
}

// userOf returns the machine that a disk belongs to, or else the disk. Names in owner references are not validated,
// so their length is checked.
func userOf(d *v1alpha1.VirtualDisk) v1alpha1.VMDiskImageUser {
	machine := v1alpha1.GroupVersion.WithKind("VirtualMachine")
	if o := metav1.GetControllerOf(d); o != nil && o.Kind == machine.Kind && strings.HasPrefix(o.APIVersion, machine.Group+"/") && len(o.Name) <= 253 && len(o.UID) <= 64 {
		return v1alpha1.VMDiskImageUser{Kind: machine.Kind, Name: o.Name, UID: o.UID}
	}
	return v1alpha1.VMDiskImageUser{Kind: "VirtualDisk", Name: d.Name, UID: d.UID}
}

// usersText describes users, such as "3 disks (VirtualMachine web-1, VirtualDisk data), 1 of them in another
// namespace".
func usersText(refs *v1alpha1.VMDiskImageReferences) string {
	text := "1 disk"
	if refs.Count != 1 {
		text = fmt.Sprintf("%d disks", refs.Count)
	}
	var names []string
	for _, user := range refs.Users[:min(len(refs.Users), named)] {
		names = append(names, user.Kind+" "+user.Name)
	}
	if len(refs.Users) > named {
		names = append(names, "and others")
	}
	if len(names) > 0 {
		text += fmt.Sprintf(" (%s)", strings.Join(names, ", "))
	}
	if refs.Elsewhere > 0 {
		text += fmt.Sprintf(", %d of them in other namespaces", refs.Elsewhere)
	}
	return text
}

// blocks records why a requested deletion is blocked.
func (v *view) blocks(reason v1alpha1.ConditionReason, message string) {
	v.deletion, v.blockade = message, &deletionBlock{reason, message}
}

// clock maintains status.unreferencedSince. A time in the future, as after a restore or a clock change, counts as
// now.
func (v *view) clock() {
	since := &v.Status.UnreferencedSince
	switch {
	case v.Status.Phase != v1alpha1.VMDiskImageReady || v.Status.References.Count > 0:
		*since = nil
	case *since == nil || (*since).After(v.now):
		*since = ptr.To(v.time())
	}
}

// expire deletes an image that has been unreferenced for its TTL, if its spec says so.
func (r *Reconciler) expire(ctx context.Context, v *view) error {
	v.clock()
	since := v.Status.UnreferencedSince
	if since == nil || v.Spec.DeletionPolicy != v1alpha1.VMDiskImageDeleteAfterUnreferenced {
		return nil
	}
	ttl := limit(v.Spec.TTLAfterUnreferenced, v1alpha1.DefaultTTLAfterUnreferenced)
	due := since.Add(ttl)
	switch {
	case v.now.Before(due):
		v.wake(due.Sub(v.now))
		return nil
	case v.noSnapshots: // they could not be deleted
		return nil
	case v.Labels[v1alpha1.LabelDeletionProtection] == v1alpha1.DeletionProtectionEnabled:
		v.blocks(v1alpha1.ReasonDeletionProtected, fmt.Sprintf("no disk has used the image for %v, but it has the label %s=%s: remove the label, or set spec.deletionPolicy to %s",
			ttl, v1alpha1.LabelDeletionProtection, v1alpha1.DeletionProtectionEnabled, v1alpha1.VMDiskImageRetain))
		return nil
	}
	if unused, err := r.unused(ctx, v); err != nil || !unused {
		v.clock()
		return err
	}
	if c := v1alpha1.ConditionDeletionBlocked.In(v.read.Conditions); c == nil || c.Reason != string(v1alpha1.ReasonDeletionDenied) { // otherwise the event was recorded already
		r.Events.Eventf(v.VMDiskImage, nil, corev1.EventTypeNormal, string(v1alpha1.ReasonImageUnreferenced), "Delete",
			"deleting the image, because no disk has used it since %s (spec.deletionPolicy, spec.ttlAfterUnreferenced)", since.UTC().Format(time.RFC3339))
	}
	// With the resourceVersion: a reference that another process has recorded meanwhile keeps the image.
	err := r.Client.Delete(ctx, v.VMDiskImage, client.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion})
	switch {
	case apierrors.IsForbidden(err):
		v.blocks(v1alpha1.ReasonDeletionDenied, fmt.Sprintf("no disk has used the image for %v, but it cannot be deleted: %v", ttl, err))
		v.wake(lastRetry)
		return nil
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("deleting VMDiskImage %s, which no disk uses: %w", v.Name, err)
	}
	v.again = time.Millisecond
	return nil
}

// wake requeues the image after that time or earlier.
func (v *view) wake(after time.Duration) {
	if v.again <= 0 || after < v.again {
		v.again = after
	}
}
