package persist

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/step"
)

const finalizer = "sallyport.dev/test"

// world has one VirtualDisk, as it was read.
func world(t *testing.T, disk *v1alpha1.VirtualDisk) (step.T, client.Client, *v1alpha1.VirtualDisk) {
	t.Helper()
	scheme := runtime.NewScheme()
	s := step.T{T: t}
	s.Must(v1alpha1.AddToScheme(scheme))
	disk.Namespace, disk.Name = "a", "d"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(disk).WithStatusSubresource(disk).Build()
	read := &v1alpha1.VirtualDisk{}
	s.Must(c.Get(t.Context(), client.ObjectKeyFromObject(disk), read))
	return s, c, read
}

func TestHold(t *testing.T) {
	deleted := &metav1.Time{Time: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		held bool
		want []string
	}{
		"a new object":                        {metav1.ObjectMeta{Finalizers: []string{"x/y"}}, true, []string{"x/y", finalizer}},
		"one that has the finalizer":          {metav1.ObjectMeta{Finalizers: []string{finalizer}}, true, []string{finalizer}},
		"one that is being deleted":           {metav1.ObjectMeta{DeletionTimestamp: deleted, Finalizers: []string{finalizer}}, true, []string{finalizer}},
		"one that only another client's keep": {metav1.ObjectMeta{DeletionTimestamp: deleted, Finalizers: []string{"x/y"}}, false, []string{"x/y"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, api, disk := world(t, &v1alpha1.VirtualDisk{ObjectMeta: c.meta})
			held, err := Hold(t.Context(), api, disk, finalizer)
			s.Must(err)
			s.Must(api.Get(t.Context(), client.ObjectKeyFromObject(disk), disk))
			if diff := cmp.Diff(c.want, disk.Finalizers); held != c.held || diff != "" {
				t.Errorf("held is %v, finalizers (-want +got)\n%s", held, diff)
			}
		})
	}
}

// What another client has changed since the object was read is not overwritten.
func TestWritesOverAnotherVersionConflict(t *testing.T) {
	s, api, stale := world(t, &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{finalizer}}})
	newer := stale.DeepCopy()
	newer.Labels = map[string]string{"x": "y"}
	s.Must(api.Update(t.Context(), newer))
	read := stale.Status.DeepCopy()
	stale.Status.DiskID = "disk-1"
	_, status := Status(t.Context(), api, stale, read, &stale.Status)
	for doing, err := range map[string]error{
		"writing the finalizers of VirtualDisk a/d: ": Release(t.Context(), api, stale.DeepCopy(), finalizer),
		"writing the status of VirtualDisk a/d: ":     status,
	} {
		if !apierrors.IsConflict(err) || !strings.HasPrefix(err.Error(), doing) {
			t.Errorf("%s: error %v", doing, err)
		}
	}
	s.Must(Release(t.Context(), api, newer, finalizer))
}

func TestAStatusIsWrittenIfItHasChanged(t *testing.T) {
	s, api, disk := world(t, &v1alpha1.VirtualDisk{})
	read := disk.Status.DeepCopy()
	for _, id := range []string{"", "disk-1"} {
		before := disk.ResourceVersion
		disk.Status.DiskID = id
		changed, err := Status(t.Context(), api, disk, read, &disk.Status)
		s.Must(err)
		if want := id != ""; changed != want || (disk.ResourceVersion != before) != want {
			t.Errorf("disk ID %q: changed is %v, version %s, was %s", id, changed, disk.ResourceVersion, before)
		}
	}
}

func TestResult(t *testing.T) {
	failed := errors.New("failed")
	conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("virtualdisks").GroupResource(), "d", nil)
	for _, c := range []struct {
		err, wantErr error
		want         ctrl.Result
	}{
		{nil, nil, ctrl.Result{RequeueAfter: time.Hour}},
		{conflict, nil, ctrl.Result{RequeueAfter: time.Millisecond}},
		{failed, failed, ctrl.Result{}},
	} {
		if got, err := Result(time.Hour, c.err); got != c.want || !errors.Is(err, c.wantErr) {
			t.Errorf("after %v: %+v, %v", c.err, got, err)
		}
	}
}
