package disk

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// booting makes VirtualMachine web, which boots from an image.
func (w *world) booting(of v1alpha1.MachineDiskImage, disks ...string) { w.boots("web", of, disks...) }

func (w *world) boots(name string, of v1alpha1.MachineDiskImage, disks ...string) {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.VirtualMachineSpec{
			RunPolicy: v1alpha1.RunPolicyAlwaysOn, BlockDeviceRefs: refs(disks...), DiskImage: &of,
			Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
		},
	}
	w.must(w.Create(w.ctx, vm))
}

func ubuntu(mode v1alpha1.DiskImageMode) v1alpha1.MachineDiskImage {
	of := v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Name: "ubuntu"}, Mode: mode}
	if mode == v1alpha1.CreateIfNotExist {
		of.Template = &v1alpha1.VMDiskImageTemplate{URL: "https://images.example.org/a", DiskSize: resource.MustParse("3Gi")}
	}
	return of
}

// waitsFor fails the test unless the machine is not made, and says why in phase and conditions.
func (f *fixture) waitsFor(reason v1alpha1.ConditionReason, text string) {
	f.Helper()
	f.rests()
	vm := f.vm("web")
	ready, image := v1alpha1.ConditionReady.In(vm.Status.Conditions), v1alpha1.ConditionImageReady.In(vm.Status.Conditions)
	if vm.Status.Phase != v1alpha1.VirtualMachineWaitingForImage || ready.Reason != string(reason) || image == nil || image.Reason != string(reason) ||
		image.Message != ready.Message || !strings.Contains(ready.Message, text) {
		f.Fatalf("it is %s; Ready: %+v; ImageReady: %+v", vm.Status.Phase, ready, image)
	}
	if in, made := f.machines.Instance(vm.UID); made {
		f.Fatalf("the machine was made: %+v", in)
	}
}

func TestMachineWaitsForItsImage(t *testing.T) {
	f := newFixture(t)
	f.disk("data")
	f.booting(ubuntu(v1alpha1.FailIfNotExist), "data")
	f.waitsFor(v1alpha1.ReasonImageMissing, "VMDiskImage ubuntu does not exist in namespace team-a: create it")
	i := f.image(v1alpha1.VMDiskImageImporting)
	f.waitsFor(v1alpha1.ReasonImageImporting, "waiting for VMDiskImage ubuntu (Importing)")
	f.phase(i, v1alpha1.VMDiskImageFailed)
	f.waitsFor(v1alpha1.ReasonImageFailed, "see the condition Ready of the image")
	f.phase(i, v1alpha1.VMDiskImageReady)
	f.rests()
	f.want(f.of("web"), "Running DisksAttached web-boot data")
	if !meta.IsStatusConditionTrue(f.vm("web").Status.Conditions, "ImageReady") {
		t.Errorf("the conditions are %+v", f.vm("web").Status.Conditions)
	}
	// That it was made may not have been written, as after a crash.
	vm := f.vm("web")
	v1alpha1.SetCondition(&vm.Status.Conditions, v1alpha1.ConditionImageReady.Condition(metav1.ConditionFalse, "ImageImporting", 1, ""), f.now)
	f.must(f.Status().Update(f.ctx, vm))
	f.rests()
	if !meta.IsStatusConditionTrue(f.vm("web").Status.Conditions, "ImageReady") {
		t.Errorf("the conditions are %+v", f.vm("web").Status.Conditions)
	}
	d := f.get("web-boot")
	if !metav1.IsControlledBy(d, vm) || d.Spec.Size.String() != "1Gi" || d.Spec.Runtime.Pod == nil || !d.Status.Image.Is(i) {
		t.Errorf("its disk is %+v", d)
	}
	f.want(f.shows("web-boot"), "InUse web DiskReady")

	// A machine that exists has no disk made again: what was on it is gone.
	f.machines.LoseDisk(d.UID)
	d.Finalizers = nil
	f.must(f.Update(f.ctx, d))
	f.must(f.Delete(f.ctx, d))
	f.rests()
	if disks := f.allDisks(); len(disks) != 1 || f.vm("web").Status.Phase == v1alpha1.VirtualMachineWaitingForImage {
		t.Errorf("there are the disks %+v", disks)
	}
	// Nor has one that the runtime has lost.
	f.machines.Lose(vm.UID)
	f.rests()
	if disks := f.allDisks(); len(disks) != 1 || f.vm("web").Status.Phase != v1alpha1.VirtualMachineFailed {
		t.Errorf("it is %s; there are the disks %+v", f.vm("web").Status.Phase, disks)
	}
}

// The machine goes first. The garbage collector, which does not run here, then deletes the disk.
func TestMachineOfAnImageIsDeleted(t *testing.T) {
	f := newFixture(t)
	f.image(v1alpha1.VMDiskImageReady)
	f.booting(ubuntu(v1alpha1.FailIfNotExist))
	f.rests()
	f.must(f.Delete(f.ctx, f.get("web-boot"))) // as a deletion in the foreground does
	f.rests()
	f.want(f.shows("web-boot"), "Terminating web DiskInUse")
	f.must(f.Delete(f.ctx, f.vm("web")))
	f.rests()
	if len(f.allMachines())+len(f.allDisks())+len(f.machines.Disks()) > 0 {
		t.Errorf("left: %+v %+v", f.allMachines(), f.allDisks())
	}
}

func TestDiskOfAnImageThatIsSomebodyElses(t *testing.T) {
	f := newFixture(t)
	f.image(v1alpha1.VMDiskImageReady)
	f.disk("web-boot")
	f.booting(ubuntu(v1alpha1.FailIfNotExist))
	f.waitsFor(v1alpha1.ReasonOwnedByAnother, "VirtualDisk web-boot exists but does not belong to this VirtualMachine")
	f.must(f.Delete(f.ctx, f.get("web-boot")))
	f.rests()
	f.want(f.of("web"), "Running DisksAttached web-boot")
}

// The garbage collector, which does not run here, deletes the disk of a machine that was deleted a moment later.
func TestDiskOfAnEarlierMachine(t *testing.T) {
	f := newFixture(t)
	f.image(v1alpha1.VMDiskImageReady)
	f.booting(ubuntu(v1alpha1.FailIfNotExist))
	f.rests()
	f.must(f.Delete(f.ctx, f.vm("web")))
	f.rests()
	f.booting(ubuntu(v1alpha1.FailIfNotExist))
	f.waitsFor(v1alpha1.ReasonDiskNotReady, "belongs to an earlier VirtualMachine of this name")
	f.must(f.Delete(f.ctx, f.get("web-boot")))
	f.rests()
	f.want(f.of("web"), "Running DisksAttached web-boot")
}

// The image is made from the template, as often as it is missing and nothing was copied.
func TestImageIsCreated(t *testing.T) {
	f := newFixture(t)
	f.booting(ubuntu(v1alpha1.CreateIfNotExist))
	ready := func() *v1alpha1.VMDiskImage {
		t.Helper()
		f.rests()
		i := &v1alpha1.VMDiskImage{}
		if err := f.Get(f.ctx, key("ubuntu"), i); err != nil || i.Spec.URL != "https://images.example.org/a" {
			t.Fatalf("the image is %+v, %v", i.Spec, err)
		}
		return i
	}
	first := ready()
	f.must(f.Delete(f.ctx, first))
	f.rests()
	second := ready()
	if first.UID == second.UID {
		t.Error("the image is the first one")
	}
	f.machines.Script(fake.At{Verb: runtime.VerbEnsureDisk}, fake.Fail(runtime.NewInvalidSpec(nil, "a quota")))
	f.phase(second, v1alpha1.VMDiskImageReady)
	f.must(f.looks("web", "web-boot", "web-boot")) // the disk holds the image, and could not be copied
	f.must(f.Delete(f.ctx, second))
	f.rests()
	third := ready()
	f.phase(third, v1alpha1.VMDiskImageReady)
	f.rests()
	f.want(f.of("web"), "Running DisksAttached web-boot")
	if d := f.get("web-boot"); d.Spec.Size.String() != "3Gi" || !slices.Equal(f.copies(), []types.UID{third.UID}) {
		t.Errorf("the disk is %+v, a copy of %v", d.Spec, f.copies())
	}
	f.must(f.Delete(f.ctx, third))
	f.rests()
	if err := f.Get(f.ctx, key("ubuntu"), &v1alpha1.VMDiskImage{}); err == nil {
		t.Error("the image was made again for a machine that has its disk")
	}
}

// looks has the machine looked at, and then the disks.
func (f *fixture) looks(vm string, disks ...string) error {
	err := f.p.look(f.p.vms, vm)
	for _, d := range disks {
		_ = f.p.look(f.p.disks, d)
	}
	return err
}

// An image that exists is used as it is. People are told once.
func TestImageDiffersFromTheTemplate(t *testing.T) {
	f := newFixture(t)
	f.image(v1alpha1.VMDiskImageImporting)
	of := ubuntu(v1alpha1.CreateIfNotExist)
	of.Template.Checksum = "sha256:0"
	f.booting(of)
	f.waitsFor(v1alpha1.ReasonImageImporting, "")
	c := meta.FindStatusCondition(f.vm("web").Status.Conditions, "ImageDiffers")
	if c == nil || !strings.HasSuffix(c.Message, "it differs from spec.diskImage.template in checksum, diskSize") {
		t.Errorf("ImageDiffers is %+v", c)
	}
	f.rests()
	if said := strings.Join(f.said(), "\n"); strings.Count(said, "TemplateDiffers") != 1 {
		t.Errorf("the events are\n%s", said)
	}
}

// At each call the process dies, before or after it has an effect. In the end there is one image, one disk and one machine.
func TestMachineOfAnImageThroughCrashes(t *testing.T) {
	for at := 1; at <= 40; at++ {
		for _, after := range []bool{false, true} {
			f := newFixture(t)
			f.booting(ubuntu(v1alpha1.CreateIfNotExist))
			f.p.Die(at, after)
			f.rests()
			f.rests() // a pass that died changed nothing
			i := &v1alpha1.VMDiskImage{}
			f.must(f.Get(f.ctx, key("ubuntu"), i))
			f.phase(i, v1alpha1.VMDiskImageReady)
			f.rests()
			f.rests()
			ready := meta.IsStatusConditionTrue(f.vm("web").Status.Conditions, "ImageReady")
			if !ready || f.of("web") != "Running DisksAttached web-boot" || !slices.Equal(f.copies(), []types.UID{i.UID}) {
				t.Errorf("dies at %d, after: %t: it is %s, with copies of %v", at, after, f.of("web"), f.copies())
			}
		}
	}
}
