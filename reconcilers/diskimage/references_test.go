package diskimage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/mortal"
)

// condition returns a condition of the image. Its status is empty if there is none.
func (w *world) condition(about v1alpha1.ConditionType) metav1.Condition {
	w.Helper()
	if c := about.In(w.image().Status.Conditions); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// is compares the status and the reason of a condition.
func (w *world) is(about v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason) {
	w.Helper()
	if c := w.condition(about); c.Status != status || c.Reason != string(reason) {
		w.Fatalf("%s is %+v, want %s and %s", about, c, status, reason)
	}
}

func ofMachine(name string) func(*v1alpha1.VirtualDisk) {
	return func(d *v1alpha1.VirtualDisk) {
		d.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "VirtualMachine", Name: name, UID: "machine", Controller: new(true),
		}}
	}
}

// The users in the namespace of the image are named, those elsewhere are counted. A disk of an earlier image of that name does not count.
func TestReferences(t *testing.T) {
	w := ready(t)
	w.is(v1alpha1.ConditionInUse, metav1.ConditionFalse, v1alpha1.ReasonImageUnreferenced)
	w.disk(namespace, "b", nil)
	w.disk(namespace, "a", ofMachine("web"))
	w.disk(namespace, "a2", ofMachine("web"))
	w.disk(namespace, "long", ofMachine(strings.Repeat("x", 254)))
	w.disk("elsewhere", "secret", nil)
	w.disk(namespace, "earlier", func(d *v1alpha1.VirtualDisk) { d.Status.Image.UID = "earlier" })
	w.disk(namespace, "none", func(d *v1alpha1.VirtualDisk) { d.Status.Image = nil })
	w.settle()
	want := &v1alpha1.VMDiskImageReferences{Count: 5, Elsewhere: 1, Users: []v1alpha1.VMDiskImageUser{
		{Kind: "VirtualDisk", Name: "b", UID: "uid-7"}, {Kind: "VirtualDisk", Name: "long", UID: "uid-10"}, {Kind: "VirtualMachine", Name: "web", UID: "machine"},
	}}
	status := w.image().Status
	if diff := cmp.Diff(want, status.References); diff != "" || status.UnreferencedSince != nil {
		t.Errorf("references (-want +got):\n%s", diff)
	}
	w.is(v1alpha1.ConditionInUse, metav1.ConditionTrue, v1alpha1.ReasonImageReferenced)
	if text := w.condition(v1alpha1.ConditionInUse).Message; text != "used by 5 disks (VirtualDisk b, VirtualDisk long, VirtualMachine web), 1 of them in other namespaces" {
		t.Errorf("the message is %q", text)
	}
	writes := w.writes
	w.later(time.Hour)
	if w.writes != writes {
		t.Errorf("%d writes at rest", w.writes-writes)
	}
	for i := range 30 {
		w.disk(namespace, fmt.Sprintf("many-%02d", i), nil)
	}
	w.settle()
	refs := w.image().Status.References
	if refs.Count != 35 || len(refs.Users) != 20 || refs.Users[3].Name != "many-01" {
		t.Errorf("references %+v", refs)
	}
	if text := w.condition(v1alpha1.ConditionInUse).Message; !strings.Contains(text, "VirtualDisk many-02, and others), 1 of them") {
		t.Errorf("the message is %q", text)
	}
}

func TestRetired(t *testing.T) {
	w := ready(t)
	w.is(v1alpha1.ConditionRetired, metav1.ConditionFalse, v1alpha1.ReasonInService)
	for retired, reason := range map[bool]v1alpha1.ConditionReason{true: v1alpha1.ReasonRetired, false: v1alpha1.ReasonInService} {
		image := w.image()
		image.Spec.Retired = retired
		w.must(w.Update(t.Context(), image))
		w.settle()
		w.is(v1alpha1.ConditionRetired, map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[retired], reason)
		w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	}
}

// heldBack checks that the image is being deleted, and that all its data is there.
func (w *world) heldBack(text string) {
	w.Helper()
	for range 3 {
		_, _ = w.pass()
	}
	w.shows(v1alpha1.VMDiskImageTerminating, v1alpha1.ReasonTerminating)
	w.is(v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, v1alpha1.ReasonImageReferenced)
	if message := w.condition(v1alpha1.ConditionDeletionBlocked).Message; !strings.Contains(message, text) {
		w.Errorf("the message %q does not contain %q", message, text)
	}
	w.says(text)
	if len(w.snapshots()) != 1 || len(w.claims()) != 1 || len(w.volumes()) != 1 {
		w.Fatalf("data of an image that is used was deleted: %s", w.names())
	}
}

// goes checks that the image goes, and everything with it.
func (w *world) goes() {
	w.Helper()
	for range 8 {
		_, _ = w.pass()
	}
	if w.image() != nil || w.names() != "" {
		w.Fatalf("left: %+v, %s", w.image(), w.names())
	}
}

// An image that is used is deleted with its last user, and says until then who that is.
func TestDeletionWaitsForUsers(t *testing.T) {
	w := ready(t)
	one, other := w.disk(namespace, "data", nil), w.disk("elsewhere", "secret", nil)
	w.told()
	w.must(w.Delete(t.Context(), w.image()))
	w.heldBack("the image is used by 2 disks (VirtualDisk data), 1 of them in other namespaces; it is deleted once they are deleted; " +
		"to list the disks: kubectl get virtualdisks --all-namespaces --field-selector status.image.uid=uid-3")
	if told := w.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Warning ImageReferenced") {
		t.Errorf("events %q", told)
	}
	writes := w.writes
	w.later(time.Hour)
	if w.writes != writes || len(w.told()) > 0 {
		t.Errorf("%d writes while it waits", w.writes-writes)
	}
	w.must(w.Delete(t.Context(), one))
	w.heldBack("the image is used by 1 disk, 1 of them in other namespaces")
	w.disabled = true // it waits for the users all the same
	w.heldBack("used by 1 disk")
	w.disabled = false
	w.must(w.Delete(t.Context(), other))
	w.goes()
}

// What the cache does not know yet keeps the data. What it still has does so until it is current.
func TestDeletionWithAStaleCache(t *testing.T) {
	w := ready(t)
	w.stale = &v1alpha1.VirtualDiskList{}
	w.emptyPages = 3
	d := w.disk("elsewhere", "secret", nil)
	w.must(w.Delete(t.Context(), w.image()))
	w.heldBack("used by 1 disk, 1 of them in other namespaces")
	w.stale = &v1alpha1.VirtualDiskList{Items: []v1alpha1.VirtualDisk{*d}}
	w.must(w.Delete(t.Context(), d))
	w.heldBack("used by 1 disk")
	w.stale = nil
	w.goes()
}

// Without the disks nothing is known, and nothing is deleted.
func TestDeletionWhenDisksCannotBeRead(t *testing.T) {
	for what, err := range map[string]error{
		"refused": apierrors.NewForbidden(schema.GroupResource{}, "", nil), "failed": errors.New("etcd has no leader"), "expired": apierrors.NewResourceExpired("too old"),
	} {
		w := ready(t)
		w.stale = &v1alpha1.VirtualDiskList{}
		w.must(w.Delete(t.Context(), w.image()))
		w.refused["list VirtualDisk"] = err
		for range 3 {
			if _, err := w.pass(); err == nil {
				t.Errorf("%s: the pass succeeds", what)
			}
		}
		w.shows(v1alpha1.VMDiskImageTerminating, v1alpha1.ReasonTerminating)
		w.says("listing the disks that use VMDiskImage ubuntu")
		if len(w.snapshots()) != 1 || len(w.claims()) != 1 {
			t.Fatalf("%s: data was deleted: %s", what, w.names())
		}
		delete(w.refused, "list VirtualDisk")
		w.goes()
	}
}

// An object of the image that does not go is named as what blocks the deletion, after a minute.
func TestDeletionWaitsForChildren(t *testing.T) {
	w := ready(t)
	snapshot := w.snapshots()[0]
	snapshot.Finalizers = []string{"example.org/as-source"}
	w.must(w.Update(t.Context(), &snapshot))
	w.must(w.Delete(t.Context(), w.image()))
	w.now = time.Now().Add(30 * time.Second) // the clock of the fake client is the real one
	for range 3 {
		_, _ = w.pass()
	}
	if c := w.condition(v1alpha1.ConditionDeletionBlocked); c.Status != "" {
		t.Errorf("it is blocked at once: %+v", c)
	}
	w.now = w.now.Add(time.Minute)
	_, _ = w.pass()
	w.is(v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, v1alpha1.ReasonChildrenRemain)
}

// unreferenced is a world with an image that is ready, and deleted after it was not used for an hour.
func unreferenced(t *testing.T) *world {
	w := ready(t)
	image := w.image()
	image.Spec.DeletionPolicy = v1alpha1.VMDiskImageDeleteAfterUnreferenced
	image.Spec.TTLAfterUnreferenced = &metav1.Duration{Duration: time.Hour}
	w.must(w.Update(t.Context(), image))
	w.settle()
	w.told()
	return w
}

func (w *world) since() time.Time {
	w.Helper()
	if since := w.image().Status.UnreferencedSince; since != nil {
		return since.UTC()
	}
	return time.Time{}
}

// The clock runs from Ready, or from the last release, and survives the process. The event comes before the deletion.
func TestDeleteAfterUnreferenced(t *testing.T) {
	w := unreferenced(t)
	start := w.now
	if !w.since().Equal(start) {
		t.Fatalf("the clock is %v", w.since())
	}
	w.later(59 * time.Minute)
	if result, _ := w.pass(); result.RequeueAfter != time.Minute || !w.since().Equal(start) {
		t.Errorf("looked at again after %v, the clock is %v", result.RequeueAfter, w.since())
	}
	d := w.disk(namespace, "data", nil)
	w.later(2 * time.Minute)
	w.later(24 * time.Hour)
	if !w.since().IsZero() || !w.image().DeletionTimestamp.IsZero() {
		t.Fatalf("an image that is used has the clock %v", w.since())
	}
	w.must(w.Delete(t.Context(), d))
	w.settle()
	if !w.since().Equal(w.now) {
		t.Fatalf("after the release, the clock is %v", w.since())
	}
	w.later(time.Hour - time.Minute)
	if len(w.told()) > 0 || w.image() == nil {
		t.Fatal("it is deleted too early")
	}
	w.now = w.now.Add(time.Minute)
	w.goes()
	if told := w.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Normal ImageUnreferenced deleting the image, because no disk has used it since 2026-11-24T") {
		t.Errorf("events %q", told)
	}
}

// What keeps an image, whose time is over, from being deleted.
func TestNotDeletedAfterUnreferenced(t *testing.T) {
	for what, tc := range map[string]struct {
		happens func(*world)
		blocked v1alpha1.ConditionReason
	}{
		"it is retained": {func(w *world) {
			image := w.image()
			image.Spec.DeletionPolicy, image.Spec.TTLAfterUnreferenced = v1alpha1.VMDiskImageRetain, nil
			w.must(w.Update(w.Context(), image))
		}, ""},
		"snapshots are not served": {func(w *world) { w.unserved["VolumeSnapshot"] = true }, ""},
		"it was lost":              {func(w *world) { w.must(w.Delete(w.Context(), &w.claims()[0])) }, ""},
		"it is protected":          {func(w *world) { w.label(v1alpha1.DeletionProtectionEnabled) }, v1alpha1.ReasonDeletionProtected},
		"the API server denies it": {func(w *world) {
			w.refused["delete VMDiskImage"] = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("not now"))
		}, v1alpha1.ReasonDeletionDenied},
		"the API server fails":             {func(w *world) { w.refused["delete VMDiskImage"] = errors.New("etcd has no leader") }, ""},
		"images are not imported any more": {func(w *world) { w.disabled = true }, ""},
		"the cache does not know its user": {func(w *world) { w.stale = &v1alpha1.VirtualDiskList{}; w.disk("elsewhere", "secret", nil) }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			w := unreferenced(t)
			tc.happens(w)
			w.now = w.now.Add(48 * time.Hour)
			for range 3 {
				_, _ = w.pass()
			}
			if image := w.image(); image == nil || !image.DeletionTimestamp.IsZero() {
				t.Fatal("it is deleted")
			}
			if c := w.condition(v1alpha1.ConditionDeletionBlocked); c.Reason != string(tc.blocked) {
				t.Errorf("blocked: %+v", c)
			}
			if tc.blocked != "" {
				w.told()
				writes := w.writes
				w.now = w.now.Add(time.Hour)
				for range 3 {
					_, _ = w.pass()
				}
				if told := w.told(); w.writes != writes || len(told) > 0 {
					t.Errorf("%d writes at rest, events %q", w.writes-writes, told)
				}
			}
		})
	}
}

func (w *world) label(value string) {
	w.Helper()
	image := w.image()
	image.Labels = map[string]string{v1alpha1.LabelDeletionProtection: value}
	w.must(w.Update(w.Context(), image))
}

// Another value of the label protects nothing, and a retired image goes like another.
func TestDeletedAfterUnreferenced(t *testing.T) {
	for what, happens := range map[string]func(*world){
		"a label without effect": func(w *world) { w.label("Enabled") },
		"retired": func(w *world) {
			image := w.image()
			image.Spec.Retired = true
			w.must(w.Update(w.Context(), image))
		},
		"not protected any more": func(w *world) {
			w.label(v1alpha1.DeletionProtectionEnabled)
			w.later(2 * time.Hour)
			w.label("")
		},
	} {
		w := unreferenced(t)
		happens(w)
		w.settle()
		w.now = w.now.Add(time.Hour)
		for range 8 {
			_, _ = w.pass()
		}
		if w.image() != nil {
			t.Errorf("%s: it is there", what)
		}
	}
}

// An import that failed, or goes on, has no clock.
func TestNoClockBeforeReady(t *testing.T) {
	w := newImage(t, func(i *v1alpha1.VMDiskImage) {
		i.Spec.DeletionPolicy, i.Spec.Import.RetryLimit = v1alpha1.VMDiskImageDeleteAfterUnreferenced, new(int32(0))
	})
	w.settle()
	w.now = w.now.Add(time.Hour)
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed})
	w.settle()
	w.later(1000 * time.Hour)
	w.shows(v1alpha1.VMDiskImageFailed, v1alpha1.ReasonRetryLimitExceeded)
	if !w.since().IsZero() {
		t.Errorf("the clock is %v", w.since())
	}
	w = newImage(t, func(i *v1alpha1.VMDiskImage) { i.Spec.DeletionPolicy = v1alpha1.VMDiskImageDeleteAfterUnreferenced })
	w.succeed()
	w.shoot(usableSnapshot)
	w.later(23 * time.Hour) // the default is 24h
	w.shows(v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	w.now = w.now.Add(2 * time.Hour)
	w.goes()
}

// A clock that is lost or in the future starts again.
func TestClockStartsAgain(t *testing.T) {
	for what, since := range map[string]*metav1.Time{"lost": nil, "in the future": new(metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)))} {
		w := unreferenced(t)
		w.now = w.now.Add(30 * time.Minute)
		image := w.image()
		image.Status.UnreferencedSince = since
		w.must(w.Status().Update(t.Context(), image))
		w.settle()
		if !w.since().Equal(w.now) {
			t.Errorf("%s: the clock is %v", what, w.since())
		}
	}
}

// A disk that comes to use the image between the last look and the deletion keeps its data, and if another process has seen it, the image
// is not even deleted.
func TestUsedJustBeforeTheDeletion(t *testing.T) {
	for call := 1; call < 10; call++ {
		for _, seen := range []bool{false, true} {
			w := unreferenced(t)
			w.now = w.now.Add(time.Hour)
			w.Begin()
			read := false
			w.Before(call, func() {
				if image := w.image(); image == nil || !image.DeletionTimestamp.IsZero() {
					return
				}
				read = true
				w.disk("elsewhere", "late", nil)
				if seen {
					_, _ = w.passBy(&mortal.Process{})
				}
			})
			for range 5 {
				_, _ = w.pass()
			}
			if !read {
				continue
			}
			if image := w.image(); image == nil || seen && !image.DeletionTimestamp.IsZero() || len(w.snapshots()) != 1 || len(w.claims()) != 1 {
				t.Fatalf("call %d, %v: image %+v, left: %s", call, seen, image, w.names())
			}
		}
	}
}

// noted is a queue that notes what is added to it.
type noted struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []string
}

func (q *noted) AddAfter(r reconcile.Request, after time.Duration) {
	q.added = append(q.added, fmt.Sprintf("%s after %v", r.Name, after))
}

// An image is looked at when a disk begins or ceases to use it, and not when a disk changes otherwise.
func TestDisksWakeTheirImages(t *testing.T) {
	disk := func(image string) *v1alpha1.VirtualDisk {
		d := &v1alpha1.VirtualDisk{}
		if image != "" {
			d.Status.Image = &v1alpha1.UsedDiskImage{Namespace: namespace, Name: image, UID: types.UID(image)}
		}
		return d
	}
	h := onDisks()
	for what, tc := range map[string]struct {
		happens func(*noted)
		want    []string
	}{
		"a disk of no image":        {func(q *noted) { h.Create(t.Context(), event.CreateEvent{Object: disk("")}, q) }, nil},
		"a disk at the start":       {func(q *noted) { h.Create(t.Context(), event.CreateEvent{Object: disk("a")}, q) }, []string{"a after 1s"}},
		"a disk that is gone":       {func(q *noted) { h.Delete(t.Context(), event.DeleteEvent{Object: disk("a")}, q) }, []string{"a after 1s"}},
		"a disk that uses one now":  {func(q *noted) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: disk(""), ObjectNew: disk("a")}, q) }, []string{"a after 1s"}},
		"a disk that uses none now": {func(q *noted) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: disk("a"), ObjectNew: disk("")}, q) }, []string{"a after 1s"}},
		"another image": {func(q *noted) {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: disk("a"), ObjectNew: disk("b")}, q)
		}, []string{"a after 1s", "b after 1s"}},
		"another change": {func(q *noted) {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: disk("a"), ObjectNew: disk("a")}, q)
		}, nil},
	} {
		q := &noted{}
		if tc.happens(q); !slices.Equal(q.added, tc.want) {
			t.Errorf("%s: %q", what, q.added)
		}
	}
}

// A process that dies at any call of a deletion leaves nothing, and the disks their data.
func TestDeathDuringADeletion(t *testing.T) {
	var d *v1alpha1.VirtualDisk
	used := func() *world {
		w := unreferenced(t)
		d = w.disk(namespace, "data", nil)
		return w
	}
	dying(t, used, func(w *world, pass func(int), at string) {
		pass(3)
		w.must(w.Delete(t.Context(), d))
		pass(3)
		w.now = w.now.Add(time.Hour)
		pass(9)
		if w.image() != nil || w.names() != "" {
			t.Fatalf("%s: left %+v, %s", at, w.image(), w.names())
		}
		if told := w.told(); !slices.ContainsFunc(told, func(e string) bool { return strings.HasPrefix(e, "Normal ImageUnreferenced") }) {
			t.Fatalf("%s: events %q", at, told)
		}
	})
}
