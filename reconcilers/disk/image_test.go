package disk

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/diskimage/use"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// imageName is the name of the image of all disks.
const imageName = "ubuntu"

// image makes the VMDiskImage in that phase.
func (w *world) image(phase v1alpha1.VMDiskImagePhase) *v1alpha1.VMDiskImage {
	i := &v1alpha1.VMDiskImage{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: imageName, Finalizers: []string{v1alpha1.VMDiskImageFinalizer}},
		Spec:       v1alpha1.VMDiskImageSpec{URL: "https://images.example.org/a", DiskSize: resource.MustParse("1Gi")},
	}
	w.must(w.Create(w.ctx, i))
	w.phase(i, phase)
	return i
}

// phase writes the status that the image reconciler writes in that phase.
func (w *world) phase(i *v1alpha1.VMDiskImage, phase v1alpha1.VMDiskImagePhase) {
	i.Status = v1alpha1.VMDiskImageStatus{Phase: phase}
	if phase == v1alpha1.VMDiskImageReady {
		i.Status.VirtualSize = new(resource.MustParse("1Gi"))
		i.Status.Claim, i.Status.Snapshot = &v1alpha1.VMDiskImageChild{Name: "c", UID: "c"}, &v1alpha1.VMDiskImageChild{Name: "s-" + string(i.UID), UID: "s"}
	}
	w.must(w.Status().Update(w.ctx, i))
}

func (w *world) deleteImage() {
	i := &v1alpha1.VMDiskImage{}
	if w.Get(w.ctx, key(imageName), i) == nil && i.DeletionTimestamp.IsZero() {
		w.must(w.Delete(w.ctx, i))
	}
}

// releaseImages does what the image reconciler does for images that are being deleted, and returns those that are gone.
func (w *world) releaseImages() (gone []types.UID) {
	var images v1alpha1.VMDiskImageList
	w.must(w.List(w.ctx, &images))
	for i := range images.Items {
		of := &images.Items[i]
		held := slices.ContainsFunc(w.allDisks(), func(d v1alpha1.VirtualDisk) bool { return d.Status.Image != nil && d.Status.Image.UID == of.UID })
		if of.DeletionTimestamp.IsZero() || held {
			continue
		}
		of.Finalizers = nil
		w.must(w.Update(w.ctx, of))
		gone = append(gone, of.UID)
	}
	return gone
}

// copied makes a VirtualDisk that is copied from the image.
func (w *world) copied(name string) *v1alpha1.VirtualDisk {
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.VirtualDiskSpec{
			Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}},
			Source: &v1alpha1.VirtualDiskSource{Image: v1alpha1.VMDiskImageReference{Name: imageName}},
		},
	}
	w.must(w.Create(w.ctx, d))
	return d
}

// copies are the disks that were made, by the UIDs of their images.
func (w *world) copies() (images []types.UID) {
	for _, d := range w.machines.Disks() {
		images = append(images, d.Image)
	}
	return images
}

func TestWaitsForItsImage(t *testing.T) {
	f := newFixture(t)
	f.copied("boot")
	shows := func(reason v1alpha1.ConditionReason, text string) {
		t.Helper()
		f.rests()
		f.want(f.shows("boot"), "Pending nobody "+string(reason))
		if c := v1alpha1.ConditionReady.In(f.get("boot").Status.Conditions); !strings.Contains(c.Message, text) {
			t.Errorf("Ready says %q, and not %q", c.Message, text)
		}
		if f.get("boot").Status.Image != nil || len(f.machines.Disks()) > 0 {
			t.Errorf("it holds %+v, and there are %v", f.get("boot").Status.Image, f.machines.Disks())
		}
	}
	shows(v1alpha1.ReasonImageMissing, "VMDiskImage ubuntu does not exist in namespace team-a: create it")
	i := f.image("")
	shows(v1alpha1.ReasonImageImporting, "waiting for VMDiskImage ubuntu (Pending): see the condition Ready of the image")
	for phase, reason := range map[v1alpha1.VMDiskImagePhase]v1alpha1.ConditionReason{
		v1alpha1.VMDiskImageImporting: v1alpha1.ReasonImageImporting, v1alpha1.VMDiskImageFailed: v1alpha1.ReasonImageFailed,
		v1alpha1.VMDiskImageLost: v1alpha1.ReasonImageLost,
	} {
		f.phase(i, phase)
		shows(reason, "VMDiskImage ubuntu")
	}
	f.deleteImage()
	shows(v1alpha1.ReasonImageTerminating, "VMDiskImage ubuntu is being deleted")
	f.releaseImages()
	shows(v1alpha1.ReasonImageMissing, "create it")

	i = f.image(v1alpha1.VMDiskImageReady)
	f.rests()
	f.want(f.shows("boot"), "Available nobody DiskReady")
	if held := f.get("boot").Status.Image; held == nil || !held.Is(i) || !slices.Equal(f.copies(), []types.UID{i.UID}) {
		t.Errorf("it holds %+v, and is a copy of %v", held, f.copies())
	}
	// What is copied is the disk's own, whatever becomes of the image; the disk holds it nevertheless.
	f.deleteImage()
	if gone := f.releaseImages(); len(gone) > 0 {
		t.Error("the image is gone although a disk holds it")
	}
	f.rests()
	f.want(f.shows("boot"), "Available nobody DiskReady")
	f.must(f.Delete(f.ctx, f.get("boot")))
	f.rests()
	if gone := f.releaseImages(); len(gone) != 1 || len(f.machines.Disks()) > 0 {
		t.Error("the image stays although no disk holds it")
	}
}

func TestSmallerThanItsImage(t *testing.T) {
	f := newFixture(t)
	i := f.image(v1alpha1.VMDiskImageReady)
	i.Status.VirtualSize = new(resource.MustParse("20Gi"))
	f.must(f.Status().Update(f.ctx, i))
	d := f.copied("boot")
	f.rests()
	f.want(f.shows("boot"), "Pending nobody InvalidSpec")
	f.want(v1alpha1.ConditionReady.In(f.get("boot").Status.Conditions).Message, "spec.size: must be at least 20Gi, the size of VMDiskImage ubuntu: "+
		`kubectl patch virtualdisks/boot -n team-a --type=merge -p '{"spec":{"size":"20Gi"}}'`)
	d = f.get(d.Name)
	d.Spec.Size = resource.MustParse("20Gi")
	f.must(f.Update(f.ctx, d))
	f.rests()
	f.want(f.shows("boot"), "Available nobody DiskReady")
}

// A retired image takes no new disks. One that holds it already, and is not copied yet, is not new.
func TestRetiredImage(t *testing.T) {
	f := newFixture(t)
	i := f.image(v1alpha1.VMDiskImageReady)
	f.copied("held")
	for f.get("held").Status.Image == nil {
		f.must(f.p.look(f.p.disks, "held"))
	}
	i.Spec.Retired = true
	f.must(f.Update(f.ctx, i))
	f.copied("late")
	f.rests()
	f.want(f.shows("held"), "Available nobody DiskReady")
	f.want(f.shows("late"), "Pending nobody ImageRetired")
	i.Spec.Retired = false
	f.must(f.Update(f.ctx, i))
	f.rests()
	f.want(f.shows("late"), "Available nobody DiskReady")
}

// holding gives a disk that holds the image, and that could not be made.
func holding(t *testing.T) (f *fixture, image *v1alpha1.VMDiskImage) {
	t.Helper()
	f = newFixture(t)
	image = f.image(v1alpha1.VMDiskImageReady)
	f.copied("boot")
	f.machines.Script(fake.At{Verb: runtime.VerbEnsureDisk}, fake.Fail(runtime.NewUnavailable(nil, "it is away")))
	for range 2 {
		_ = f.p.look(f.p.disks, "boot")
	}
	if held := f.get("boot").Status.Image; held == nil || !held.Is(image) {
		t.Fatalf("it holds %+v", held)
	}
	return f, image
}

// A disk that nothing was copied to gives up an image that is being deleted, or that was removed by force: neither waits for the other.
func TestGivesUpItsImage(t *testing.T) {
	f, image := holding(t)
	f.deleteImage()
	f.rests()
	f.want(f.shows("boot"), "Pending nobody ImageTerminating")
	if gone := f.releaseImages(); !slices.Equal(gone, []types.UID{image.UID}) {
		t.Errorf("the image stays: %+v", f.get("boot").Status)
	}
	f.rests()
	f.want(f.shows("boot"), "Pending nobody ImageMissing")

	f, image = holding(t)
	image.Finalizers = nil
	f.must(f.Update(f.ctx, image))
	f.deleteImage()
	f.rests()
	f.want(f.shows("boot"), "Pending nobody ImageMissing")
	if held := f.get("boot").Status.Image; held != nil {
		t.Errorf("it holds %+v", held)
	}
}

// An image that was created again before anything was copied is used, and people are told.
func TestImageReplacedBeforeTheCopy(t *testing.T) {
	f, i := holding(t)
	i.Finalizers = nil // by force
	f.must(f.Update(f.ctx, i))
	f.deleteImage()
	again := f.image(v1alpha1.VMDiskImageReady)
	f.rests()
	if held := f.get("boot").Status.Image; !held.Is(again) || !slices.Equal(f.copies(), []types.UID{again.UID}) {
		t.Errorf("it holds %+v, and is a copy of %v", held, f.copies())
	}
	if said := fmt.Sprint(f.said()); !strings.Contains(said, "ImageReplaced") {
		t.Errorf("the events are %s", said)
	}
}

// said are the events so far.
func (f *fixture) said() (all []string) {
	for len(f.events.Events) > 0 {
		all = append(all, <-f.events.Events)
	}
	return all
}

// A disk that exists and is not recorded holds no image that it is no copy of.
func TestCopyOfAnEarlierImage(t *testing.T) {
	f := newFixture(t)
	d := f.copied("boot")
	made := runtime.DiskOf(d)
	made.Source = &runtime.DiskSource{Image: "uid-earlier"}
	if _, err := f.machines.Client("them").EnsureDisk(f.ctx, made); err != nil {
		t.Fatal(err)
	}
	f.image(v1alpha1.VMDiskImageReady)
	f.rests()
	f.want(f.shows("boot"), "Available nobody DiskReady")
	if held := f.get("boot").Status.Image; held != nil {
		t.Errorf("it holds %+v", held)
	}
}

// So does one whose status was lost, as after a restore, and it holds its image again.
func TestCopyWhoseStatusWasLost(t *testing.T) {
	f := newFixture(t)
	i := f.image(v1alpha1.VMDiskImageReady)
	f.copied("boot")
	f.rests()
	d := f.get("boot")
	d.Status = v1alpha1.VirtualDiskStatus{}
	f.must(f.Status().Update(f.ctx, d))
	f.rests()
	f.want(f.shows("boot"), "Available nobody DiskReady")
	if held := f.get("boot").Status.Image; held == nil || !held.Is(i) || len(f.copies()) != 1 {
		t.Errorf("it holds %+v", held)
	}
}

// At each call the process dies, before or after it has an effect, or the image is deleted. A copy that began ends, from the image that the
// disk holds, and none begins from an image that is gone.
func TestCopyThroughEverything(t *testing.T) {
	for at := 1; at <= 12; at++ {
		for what, befall := range map[string]func(*fixture, *[]types.UID){
			"dies before": func(f *fixture, _ *[]types.UID) { f.p.Die(at, false) },
			"dies after":  func(f *fixture, _ *[]types.UID) { f.p.Die(at, true) },
			"image deleted": func(f *fixture, gone *[]types.UID) {
				f.p.Before(at, func() {
					f.deleteImage()
					*gone = f.releaseImages()
				})
			},
		} {
			t.Run(fmt.Sprintf("%s at %d", what, at), func(t *testing.T) {
				f := newFixture(t)
				i := f.image(v1alpha1.VMDiskImageReady)
				f.copied("boot")
				var gone []types.UID
				befall(f, &gone)
				f.machines.Script(fake.At{Verb: runtime.VerbEnsureDisk}, fake.LoseReply())
				f.rests() // a pass that died changed nothing
				f.rests()
				d := f.get("boot")
				switch {
				case len(gone) > 0 && len(f.copies()) > 0:
					t.Fatalf("a disk was copied from an image that is gone: %+v", d.Status)
				case len(gone) > 0:
					f.want(f.shows("boot"), "Pending nobody ImageMissing")
				case f.deleting("ubuntu") && d.Status.Image == nil:
					f.want(f.shows("boot"), "Pending nobody ImageTerminating")
				case d.Status.Image == nil || !d.Status.Image.Is(i) || !slices.Equal(f.copies(), []types.UID{i.UID}):
					t.Errorf("it holds %+v, and is a copy of %v", d.Status.Image, f.copies())
				default:
					f.want(f.shows("boot"), "Available nobody DiskReady")
				}
			})
		}
	}
}

func (f *fixture) deleting(image string) bool {
	i := &v1alpha1.VMDiskImage{}
	err := f.Get(f.ctx, key(image), i)
	if !apierrors.IsNotFound(err) {
		f.must(err)
	}
	return err == nil && !i.DeletionTimestamp.IsZero()
}

// Disks that wait for an image are found by its name, until they are made; the progress of an import changes nothing for them.
func TestDisksOfAnImage(t *testing.T) {
	f := newFixture(t)
	d := f.copied("boot")
	if keys := imageKeys(d); !slices.Equal(keys, []string{"team-a/ubuntu"}) {
		t.Errorf("it is found by %v", keys)
	}
	d.Status.DiskID = "disk-1"
	if keys := append(imageKeys(d), imageKeys(f.disk("empty"))...); len(keys) > 0 {
		t.Errorf("disks that wait for nothing are found by %v", keys)
	}
	before := f.image(v1alpha1.VMDiskImageImporting)
	now := before.DeepCopy()
	now.Status.Attempt = &v1alpha1.VMDiskImageAttempt{Number: 1, Progress: "45.12%"}
	if use.Changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now}) {
		t.Error("progress is told")
	}
	now.Status.Phase = v1alpha1.VMDiskImageFailed
	if !use.Changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now}) {
		t.Error("the end of the import is not told")
	}
}
