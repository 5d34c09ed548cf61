package diskimage

import (
	"context"
	"slices"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A reconcile of a ready image reads its objects by their names: a list by labels would have the API server look at all claims of the
// namespace. Of an image that is being deleted, all objects are listed.
func TestObjectsOfAReadyImageAreReadByName(t *testing.T) {
	w := ready(t)
	selected := func() (all []string) {
		live := interceptor.NewClient(w.WithWatch, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
				if by := (&client.ListOptions{}).ApplyOptions(opts).FieldSelector; by != nil {
					all = append(all, by.String())
				} else {
					all = append(all, "")
				}
				return c.List(ctx, o, opts...)
			},
		})
		r := &Reconciler{Client: w, Live: live, Events: w.events, Now: func() time.Time { return w.now }}
		_, err := r.Reconcile(w.Context(), ctrl.Request{NamespacedName: imageKey})
		w.must(err)
		return all
	}
	name := "metadata.name=" + childName(w.image().UID, 1)
	if got := selected(); !slices.Equal(got, []string{name, name, name}) {
		t.Errorf("the lists are by %q", got)
	}
	w.must(w.Delete(w.Context(), w.image()))
	if got := selected(); !slices.Equal(got[len(got)-3:], []string{"", "", ""}) {
		t.Errorf("the lists are by %q", got)
	}
}

// A claim that another client creates in place of the deleted one has other data.
func TestClaimIsReplaced(t *testing.T) {
	w := newImage(t, nil)
	w.succeed()
	w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonSnapshotPending)
	again := w.claims()[0].DeepCopy()
	w.must(w.Delete(t.Context(), &w.claims()[0]))
	again.ResourceVersion = ""
	w.make(again)
	w.shoot(usableSnapshot)
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonImportFailed)
	w.says("the claim was deleted")
}

// If a driver does not report readiness, a snapshot with a size is used, unless it has an error.
func TestSnapshotWithoutReadiness(t *testing.T) {
	w := newImage(t, nil)
	w.succeed()
	status := snapshotv1.VolumeSnapshotStatus{RestoreSize: usableSnapshot.RestoreSize, Error: &snapshotv1.VolumeSnapshotError{Message: new("the array is full")}}
	w.shoot(status)
	w.shows(v1alpha1.VMDiskImageImporting, v1alpha1.ReasonSnapshotFailed)
	status.Error = nil
	w.shoot(status)
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
}

// An object that another client creates in place of one of the image's, at any time of its deletion, stays.
func TestDeletionOfAnObjectThatIsReplaced(t *testing.T) {
	for call := 1; ; call++ {
		w := ready(t)
		name, replaced := w.snapshots()[0].Name, false
		w.must(w.Delete(t.Context(), w.image()))
		w.Begin()
		w.Before(call, func() {
			replaced = w.image() != nil
			for _, s := range w.snapshots() {
				w.must(w.Delete(t.Context(), &s))
			}
			w.make(&snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		})
		for range 12 {
			_, _ = w.pass()
		}
		if !replaced {
			return
		}
		if w.image() != nil || w.names() != "snapshot "+name {
			t.Errorf("call %d: left %+v, %s", call, w.image(), w.names())
		}
	}
}
