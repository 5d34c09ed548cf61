package disk

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// shared makes image ubuntu in namespace images, which allows namespaces with the label images=yes, and whose snapshot is h-1 on the storage
// system. Namespace team-a has the label.
func (f *fixture) shared() *v1alpha1.VMDiskImage {
	f.Helper()
	f.must(f.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"images": "yes"}}}))
	i := &v1alpha1.VMDiskImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: imageName, Finalizers: []string{v1alpha1.VMDiskImageFinalizer}},
		Spec: v1alpha1.VMDiskImageSpec{AllowedNamespaces: v1alpha1.VMDiskImageNamespaces{
			From: v1alpha1.VMDiskImageFromSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"images": "yes"}},
		}},
	}
	f.must(f.Create(f.ctx, i))
	f.phase(i, v1alpha1.VMDiskImageReady)
	f.snapshotOf(i, "h-1")
	return i
}

// snapshotOf makes the snapshot of an image, which has that handle.
func (f *fixture) snapshotOf(i *v1alpha1.VMDiskImage, handle string) {
	f.Helper()
	name := i.Status.Snapshot.Name
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: name}}
	f.must(f.Create(f.ctx, s))
	s.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &name}
	f.must(f.Status().Update(f.ctx, s))
	i.Status.Snapshot.UID = s.UID
	f.must(f.Status().Update(f.ctx, i))
	c := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: snapshotv1.VolumeSnapshotContentSpec{
		VolumeSnapshotRef: corev1.ObjectReference{Namespace: i.Namespace, Name: name, UID: s.UID}, Driver: "csi", VolumeSnapshotClassName: new("snap"),
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, SourceVolumeMode: new(corev1.PersistentVolumeBlock),
		Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("v-1")},
	}}
	f.must(f.Create(f.ctx, c))
	c.Status = &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &handle}
	f.must(f.Status().Update(f.ctx, c))
}

// borrowed returns what a disk has for its copy.
func (f *fixture) borrowed(d *v1alpha1.VirtualDisk) (c *snapshotv1.VolumeSnapshotContent, s *snapshotv1.VolumeSnapshot) {
	f.Helper()
	c, s = &snapshotv1.VolumeSnapshotContent{}, &snapshotv1.VolumeSnapshot{}
	if err := f.Get(f.ctx, types.NamespacedName{Name: "svd-" + string(d.UID)}, c); err != nil {
		c = nil
	}
	if err := f.Get(f.ctx, key("svd-"+string(d.UID)), s); err != nil {
		s = nil
	}
	return c, s
}

// readyToUse does what the snapshot controller does.
func (f *fixture) readyToUse(d *v1alpha1.VirtualDisk) {
	f.Helper()
	_, s := f.borrowed(d)
	s.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true)}
	f.must(f.Status().Update(f.ctx, s))
}

func (f *fixture) copiedFromAbroad() *v1alpha1.VirtualDisk {
	f.Helper()
	d := f.copied("boot")
	d.Spec.Source.Image.Namespace = "images"
	f.must(f.Update(f.ctx, d))
	return d
}

func TestCopyFromAnotherNamespace(t *testing.T) {
	f := newFixture(t)
	i, d := f.shared(), f.copiedFromAbroad()
	f.rests()
	f.want(f.shows("boot"), "Pending nobody ImageImporting")
	c, s := f.borrowed(d)
	name := "svd-" + string(d.UID)
	want := snapshotv1.VolumeSnapshotContentSpec{
		VolumeSnapshotRef: corev1.ObjectReference{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshot", Namespace: namespace, Name: name},
		DeletionPolicy:    snapshotv1.VolumeSnapshotContentRetain, Driver: "csi", VolumeSnapshotClassName: new("snap"),
		SourceVolumeMode: new(corev1.PersistentVolumeBlock), Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: new("h-1")},
	}
	if diff := cmp.Diff(want, c.Spec); diff != "" || *s.Spec.Source.VolumeSnapshotContentName != name {
		t.Fatalf("%s; the snapshot is %+v", diff, s)
	}
	f.readyToUse(d)
	f.rests()
	f.want(f.shows("boot"), "Available nobody DiskReady")
	calls := f.machines.Calls()
	made := calls[slicesLastIndex(calls, runtime.VerbEnsureDisk)].Disk.Source
	if made.Snapshot != name || made.Claim != (types.NamespacedName{Namespace: "images", Name: "c"}) || made.Image != i.UID {
		t.Errorf("it was made from %+v", made)
	}
	if c, s := f.borrowed(d); c != nil || s != nil {
		t.Errorf("after the copy there are %v %v", c, s)
	}
	if d := f.get("boot"); !d.Status.Image.Is(i) || d.Status.CopySnapshot != "" {
		t.Errorf("the disk shows %+v", d.Status)
	}
	if err := f.Get(f.ctx, types.NamespacedName{Name: i.Status.Snapshot.Name}, &snapshotv1.VolumeSnapshotContent{}); err != nil {
		t.Errorf("the snapshot of the image: %v", err)
	}
}

func slicesLastIndex(calls []fake.Call, verb runtime.Verb) (last int) {
	for i, c := range calls {
		if c.Verb == verb {
			last = i
		}
	}
	return last
}

// What is in the way of a copy is shown. What was made for the copy goes when it is not made, and what was not made for it stays.
func TestCopyFromAnotherNamespaceIsNotMade(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(f *fixture, i *v1alpha1.VMDiskImage, d *v1alpha1.VirtualDisk)
		reason v1alpha1.ConditionReason
		kept   bool
	}{
		"the image no longer allows the namespace": {reason: v1alpha1.ReasonImageNotAllowed, change: func(f *fixture, i *v1alpha1.VMDiskImage, _ *v1alpha1.VirtualDisk) {
			i.Spec.AllowedNamespaces = v1alpha1.VMDiskImageNamespaces{From: v1alpha1.VMDiskImageFromSame}
			f.must(f.Update(f.ctx, i))
		}},
		"the namespace lost its label": {reason: v1alpha1.ReasonImageNotAllowed, change: func(f *fixture, _ *v1alpha1.VMDiskImage, _ *v1alpha1.VirtualDisk) {
			f.must(f.Update(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		}},
		"the image is being deleted": {reason: v1alpha1.ReasonImageTerminating, change: func(f *fixture, i *v1alpha1.VMDiskImage, _ *v1alpha1.VirtualDisk) {
			f.must(f.Delete(f.ctx, i))
		}},
		"the disk is being deleted": {change: func(f *fixture, _ *v1alpha1.VMDiskImage, d *v1alpha1.VirtualDisk) { f.must(f.Delete(f.ctx, d)) }},
		"somebody has another snapshot of the name": {reason: v1alpha1.ReasonOwnedByAnother, kept: true, change: func(f *fixture, _ *v1alpha1.VMDiskImage, d *v1alpha1.VirtualDisk) {
			_, s := f.borrowed(d)
			s.Spec.Source = snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("theirs")}
			f.must(f.Update(f.ctx, s))
		}},
		"the snapshot has another content": {reason: v1alpha1.ReasonOwnedByAnother, kept: true, change: func(f *fixture, _ *v1alpha1.VMDiskImage, d *v1alpha1.VirtualDisk) {
			_, s := f.borrowed(d)
			s.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: new("theirs")}
			f.must(f.Update(f.ctx, s))
		}},
		"the content has another snapshot": {reason: v1alpha1.ReasonOwnedByAnother, kept: true, change: func(f *fixture, _ *v1alpha1.VMDiskImage, d *v1alpha1.VirtualDisk) {
			c, _ := f.borrowed(d)
			c.Spec.VolumeSnapshotRef.Name = "theirs"
			f.must(f.Update(f.ctx, c))
		}},
		"the content has a snapshot in another namespace": {reason: v1alpha1.ReasonOwnedByAnother, kept: true, change: func(f *fixture, _ *v1alpha1.VMDiskImage, d *v1alpha1.VirtualDisk) {
			c, _ := f.borrowed(d)
			c.Spec.VolumeSnapshotRef.Namespace = "theirs"
			f.must(f.Update(f.ctx, c))
		}},
		"its content would be deleted with it": {reason: v1alpha1.ReasonOwnedByAnother, kept: true, change: func(f *fixture, _ *v1alpha1.VMDiskImage, d *v1alpha1.VirtualDisk) {
			c, _ := f.borrowed(d)
			c.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentDelete
			f.must(f.Update(f.ctx, c))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			i, d := f.shared(), f.copiedFromAbroad()
			f.rests()
			f.read(i)
			tc.change(f, i, f.get("boot"))
			f.rests()
			if tc.reason != "" {
				f.want(f.shows("boot"), "Pending nobody "+string(tc.reason))
			} else if len(f.allDisks()) > 0 {
				t.Errorf("there is %+v", f.allDisks())
			}
			if c, s := f.borrowed(d); (c != nil) != tc.kept || (s != nil) != tc.kept {
				t.Errorf("there are %v %v", c, s)
			}
			if len(f.machines.Disks()) > 0 {
				t.Errorf("there is data: %+v", f.machines.Disks())
			}
			if !tc.kept {
				return
			}
			f.must(f.Delete(f.ctx, f.get("boot")))
			f.rests()
			if _, s := f.borrowed(d); s == nil || len(f.allDisks()) > 0 {
				t.Errorf("after the deletion there are %v, disks %+v", s, f.allDisks())
			}
		})
	}
}

// A client that may write VolumeSnapshots in the namespace cannot keep the content, which refers to the data of the image, by replacing the
// snapshot that is bound to it.
func TestContentGoesIfItsSnapshotIsReplaced(t *testing.T) {
	f := newFixture(t)
	f.shared()
	d := f.copiedFromAbroad()
	f.rests()
	_, s := f.borrowed(d)
	s.Spec.Source = snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("theirs")}
	f.must(f.Update(f.ctx, s))
	f.must(f.Delete(f.ctx, f.get("boot")))
	f.rests()
	if c, s := f.borrowed(d); c != nil || s == nil || len(f.allDisks()) > 0 {
		t.Errorf("there are %v %v, disks %+v", c, s, f.allDisks())
	}
}

func (f *fixture) read(o client.Object) {
	f.Helper()
	f.must(f.Get(f.ctx, client.ObjectKeyFromObject(o), o))
}

// Sallyport may lack the right to make contents, as without imports.
func TestCopyFromAnotherNamespaceWithoutTheRight(t *testing.T) {
	f := newFixture(t)
	f.shared()
	f.copiedFromAbroad()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents"}, "x", nil)
	f.p.disks.Client = interceptor.NewClient(f.WithWatch, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return forbidden },
	})
	f.rests()
	f.want(f.shows("boot"), "Pending nobody PermissionDenied")
	if ready := v1alpha1.ConditionReady.In(f.get("boot").Status.Conditions); !strings.Contains(ready.Message, "diskImages.enabled=true") {
		t.Errorf("it says %s", ready.Message)
	}
}

// If imports are disabled in the middle of a copy, nothing is left behind: a disk that is deleted stays until what was made for its copy can be
// deleted, and one that is not needs nothing.
func TestCopyFromAnotherNamespaceWithoutTheRightToEndIt(t *testing.T) {
	f := newFixture(t)
	f.shared()
	d := f.copiedFromAbroad()
	f.rests()
	if got := f.get("boot").Status.CopySnapshot; got != "svd-"+string(d.UID) {
		t.Fatalf("status.copySnapshot is %q", got)
	}
	live := f.p.disks.Live
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents"}, "x", nil)
	f.p.disks.Live = interceptor.NewClient(f.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, content := o.(*snapshotv1.VolumeSnapshotContent); content {
				return forbidden
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	f.must(f.Delete(f.ctx, f.get("boot")))
	f.rests()
	f.want(f.shows("boot"), "Terminating nobody PermissionDenied")
	if c, s := f.borrowed(d); c == nil || s == nil {
		t.Errorf("there are %v %v", c, s)
	}
	f.p.disks.Live = live
	f.rests()
	if c, s := f.borrowed(d); c != nil || s != nil || len(f.allDisks()) > 0 {
		t.Errorf("there are %v %v, disks %+v", c, s, f.allDisks())
	}
}

// A machine boots from an image of another namespace, which it creates from its template.
func TestMachineOfAnImageInAnotherNamespace(t *testing.T) {
	f := newFixture(t)
	f.must(f.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{corev1.LabelMetadataName: namespace},
	}}))
	of := ubuntu(v1alpha1.CreateIfNotExist)
	of.Ref.Namespace = "images"
	f.booting(of)
	f.waitsFor(v1alpha1.ReasonImageImporting, "waiting for VMDiskImage ubuntu")
	i := &v1alpha1.VMDiskImage{}
	f.must(f.Get(f.ctx, types.NamespacedName{Namespace: "images", Name: "ubuntu"}, i))
	f.phase(i, v1alpha1.VMDiskImageReady)
	f.snapshotOf(i, "h-1")
	f.rests()
	f.readyToUse(f.get("web-boot"))
	f.rests()
	f.want(f.of("web"), "Running DisksAttached web-boot")

	// An image that does not allow the namespace is not used.
	f = newFixture(t)
	f.shared()
	f.must(f.Update(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	f.booting(of)
	f.waitsFor(v1alpha1.ReasonImageNotAllowed, "namespace team-a may not use VMDiskImage ubuntu in namespace images")
}
