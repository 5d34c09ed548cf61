package disk

import (
	"context"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// If the content of the image's snapshot is deleted, the snapshot controller takes the snapshot again. Content with the handle of the former
// one is replaced.
func TestCopyAfterTheSnapshotIsTakenAgain(t *testing.T) {
	f := newFixture(t)
	i, d := f.shared(), f.copiedFromAbroad()
	f.rests()
	of := f.contentOf(i)
	of.Status.SnapshotHandle = new("h-2")
	f.must(f.Status().Update(f.ctx, of))
	f.rests()
	if c, s := f.borrowed(d); c == nil || s == nil || *c.Spec.Source.SnapshotHandle != "h-2" {
		t.Fatalf("there are %+v %+v", c, s)
	}
	f.readyToUse(d)
	f.rests()
	f.want(f.shows("boot"), "Available nobody DiskReady")
}

func (f *fixture) contentOf(i *v1alpha1.VMDiskImage) *snapshotv1.VolumeSnapshotContent {
	f.Helper()
	c := &snapshotv1.VolumeSnapshotContent{}
	f.must(f.Get(f.ctx, types.NamespacedName{Name: i.Status.Snapshot.Name}, c))
	return c
}

// Nothing is copied unless the image's snapshot and its content refer to each other. Otherwise a user who can write the status of
// VolumeSnapshots could name the content of any snapshot in the cluster.
func TestCopyFromASnapshotThatIsNotBound(t *testing.T) {
	for name, change := range map[string]func(*fixture, *snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent){
		"the snapshot does not exist": func(f *fixture, s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
			f.must(f.Delete(f.ctx, s))
		},
		"the snapshot is another one of its name": func(f *fixture, s *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
			f.must(f.Delete(f.ctx, s))
			again := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
			f.must(f.Create(f.ctx, again))
			again.Status = s.Status
			f.must(f.Status().Update(f.ctx, again))
			c.Spec.VolumeSnapshotRef.UID = again.UID
			f.must(f.Update(f.ctx, c))
		},
		"the snapshot has no status yet": func(f *fixture, s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
			s.Status = nil
			f.must(f.Status().Update(f.ctx, s))
		},
		"the snapshot has no content yet": func(f *fixture, s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
			s.Status.BoundVolumeSnapshotContentName = nil
			f.must(f.Status().Update(f.ctx, s))
		},
		"the content does not exist": func(f *fixture, _ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
			f.must(f.Delete(f.ctx, c))
		},
		"the content belongs to another snapshot": func(f *fixture, _ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
			c.Spec.VolumeSnapshotRef.UID = "another"
			f.must(f.Update(f.ctx, c))
		},
		"the content has no handle yet": func(f *fixture, _ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) {
			c.Status.SnapshotHandle = nil
			f.must(f.Status().Update(f.ctx, c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			i := f.shared()
			s := &snapshotv1.VolumeSnapshot{}
			f.must(f.Get(f.ctx, types.NamespacedName{Namespace: i.Namespace, Name: i.Status.Snapshot.Name}, s))
			change(f, s, f.contentOf(i))
			d := f.copiedFromAbroad()
			f.rests()
			f.want(f.shows("boot"), "Pending nobody ImageImporting")
			if ready := v1alpha1.ConditionReady.In(f.get("boot").Status.Conditions); ready.Message != "waiting until the snapshot of VMDiskImage ubuntu is bound" {
				t.Errorf("it says %s", ready.Message)
			}
			if c, s := f.borrowed(d); c != nil || s != nil {
				t.Errorf("there are %+v %+v", c, s)
			}
		})
	}
}

// copying is a runtime that is still copying the data of its disks.
type copying struct{ *fake.Runtime }

func (r copying) ObserveDisk(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
	seen, err := r.Runtime.ObserveDisk(ctx, d)
	seen.Copying = seen.Exists
	return seen, err
}

// The snapshot stays until all data is copied from it.
func TestSnapshotStaysDuringTheCopy(t *testing.T) {
	f := newFixture(t)
	f.shared()
	d := f.copiedFromAbroad()
	f.rests()
	f.readyToUse(d)
	copied := f.p.disks.Runtimes
	f.p.disks.Runtimes = func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error) {
		return runtime.NewClient(copying{f.machines.Client("us")}), nil
	}
	f.rests()
	if c, s := f.borrowed(d); c == nil || s == nil || len(f.machines.Disks()) != 1 {
		t.Errorf("during the copy there are %v %v, disks %+v", c, s, f.machines.Disks())
	}
	f.p.disks.Runtimes = copied
	f.rests()
	if c, s := f.borrowed(d); c != nil || s != nil {
		t.Errorf("after the copy there are %v %v", c, s)
	}
}

// Nothing is copied from objects that are being deleted, although the snapshot is ready to use. A disk that is deleted deletes the other
// object, and does not wait for this one.
func TestCopyFromObjectsThatAreBeingDeleted(t *testing.T) {
	for name, choose := range map[string]func(*snapshotv1.VolumeSnapshotContent, *snapshotv1.VolumeSnapshot) client.Object{
		"the content":  func(c *snapshotv1.VolumeSnapshotContent, _ *snapshotv1.VolumeSnapshot) client.Object { return c },
		"the snapshot": func(_ *snapshotv1.VolumeSnapshotContent, s *snapshotv1.VolumeSnapshot) client.Object { return s },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.shared()
			d := f.copiedFromAbroad()
			f.rests()
			o := choose(f.borrowed(d))
			o.SetFinalizers([]string{"example.org/bound"})
			f.must(f.Update(f.ctx, o))
			f.must(f.Delete(f.ctx, o))
			f.readyToUse(d)
			f.rests()
			f.want(f.shows("boot"), "Pending nobody ImageImporting")
			if len(f.machines.Disks()) > 0 {
				t.Errorf("there is data: %+v", f.machines.Disks())
			}
			f.must(f.Delete(f.ctx, f.get("boot")))
			f.rests()
			if c, s := f.borrowed(d); (c != nil && s != nil) || len(f.allDisks()) > 0 {
				t.Errorf("after the deletion there are %v %v, disks %+v", c, s, f.allDisks())
			}
		})
	}
}

// A snapshot that another client creates in place of that of the copy, at any time of the disk's deletion, stays. The content does not: with
// another snapshot, that client could keep using the data of the image.
func TestSnapshotOfTheCopyIsReplaced(t *testing.T) {
	for call := 1; ; call++ {
		f := newFixture(t)
		f.shared()
		d := f.copiedFromAbroad()
		f.rests()
		f.must(f.Delete(f.ctx, f.get("boot")))
		replaced := false
		f.p.Before(call, func() {
			replaced = true
			if _, s := f.borrowed(d); s != nil {
				f.must(f.Delete(f.ctx, s))
			}
			f.must(f.Create(f.ctx, &snapshotv1.VolumeSnapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "svd-" + string(d.UID)},
				Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("theirs")}},
			}))
		})
		f.rests()
		f.rests() // a deletion that failed changed nothing
		if !replaced {
			return
		}
		if c, s := f.borrowed(d); c != nil || s == nil || len(f.allDisks()) > 0 {
			t.Errorf("call %d: there are %v %v, disks %+v", call, c, s, f.allDisks())
		}
	}
}

// A cluster that no longer serves VolumeSnapshots has no objects of a copy: a disk that is deleted does not wait for them.
func TestDeletionWhereSnapshotsAreNotServed(t *testing.T) {
	f := newFixture(t)
	f.shared()
	f.copiedFromAbroad()
	f.rests()
	f.p.disks.Live = interceptor.NewClient(f.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			switch o.(type) {
			case *snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent:
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: snapshotv1.GroupName}}
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	f.must(f.Delete(f.ctx, f.get("boot")))
	f.rests()
	if len(f.allDisks()) > 0 {
		t.Errorf("there are disks %+v", f.allDisks())
	}
}
