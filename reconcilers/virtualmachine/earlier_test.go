package virtualmachine

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// restore replaces the VirtualMachine by what a backup has of it: another object of its name, without status. Its machine stays.
func (f *fixture) restore(policy v1alpha1.RunPolicy) types.UID {
	f.Helper()
	vm := f.vm()
	vm.Finalizers = nil
	f.Must(f.api.Update(f.Context(), vm))
	f.Must(f.api.Delete(f.Context(), vm))
	f.restart() // as for kubectl sallyport release --all
	return f.machine(policy, func(again *v1alpha1.VirtualMachine) { again.Annotations = vm.Annotations })
}

func (f *fixture) restoreStatus(status v1alpha1.VirtualMachineStatus) {
	f.Helper()
	vm := f.vm()
	vm.Status = status
	f.Must(f.api.Status().Update(f.Context(), vm))
}

func (f *fixture) annotate(key string, uid types.UID) {
	f.Helper()
	vm := f.vm()
	metav1.SetMetaDataAnnotation(&vm.ObjectMeta, key, string(uid))
	f.Must(f.api.Update(f.Context(), vm))
}

// A VirtualMachine that is restored beside its machine waits until somebody decides: velero#2554, cluster-api#5957, crossplane#1410.
func TestRestored(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation, effects string
		machines            int
		status              bool // Velero restores it on demand
	}{
		"taken over":                  {v1alpha1.AnnotationTakeOver, "Created PoweredOn TakenOver", 1, false},
		"taken over, with its status": {v1alpha1.AnnotationTakeOver, "Created PoweredOn TakenOver", 1, true},
		"made anew":                   {v1alpha1.AnnotationMakeAnew, "Created PoweredOn Created PoweredOn", 2, false},
		"made anew, with its status":  {v1alpha1.AnnotationMakeAnew, "Created PoweredOn Created PoweredOn", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			before := f.machine(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)
			f.settle()
			f.is("Running True/AsWanted")
			f.annotate(tc.annotation, before) // of no effect, and restored with the rest
			status := f.vm().Status
			uid := f.restore(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)
			if tc.status {
				f.restoreStatus(status)
			}
			f.settle()
			f.is("Pending False/OwnedByAnother")
			if in, _ := f.world.Instance(before); in.Power != v1alpha1.PowerRunning || len(f.world.Instances()) != 1 {
				t.Fatalf("the machines are %+v", f.world.Instances())
			}
			f.annotate(tc.annotation, uid)
			f.settle()
			if in, _ := f.world.Instance(uid); in.Owner != uid || len(f.world.Instances()) != tc.machines {
				t.Errorf("the machines are %+v", f.world.Instances())
			}
			if got := f.effects(); !strings.HasPrefix(got, tc.effects) {
				t.Errorf("what happened: %s, want %s", got, tc.effects)
			}
		})
	}
}

// A machine that somebody stopped before the restore stays off: the status that said so is lost, and the machine is what is left of it.
func TestTakenOverAsItIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)
	f.settle()
	f.ask("stop-1", "Stop force")
	f.settle()
	f.is("Stopped True/AsWanted")
	uid := f.restore(v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually)
	f.settle()
	f.annotate(v1alpha1.AnnotationTakeOver, uid)
	f.settle()
	f.is("Stopped True/AsWanted")
}

// No operation reaches the machine of another one, and one that is held back can be deleted.
func TestHeldBackIsDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.machine(v1alpha1.RunPolicyAlwaysOn)
	f.settle()
	status := f.vm().Status
	f.restore(v1alpha1.RunPolicyAlwaysOn)
	f.restoreStatus(status)
	f.settle()
	f.is("Pending False/OwnedByAnother")
	f.ask("stop-1", "Restart force")
	f.settle()
	f.Must(f.api.Delete(f.Context(), f.vm()))
	f.settle()
	if vm := f.lookup(); vm != nil {
		t.Errorf("it is still there: %+v", vm)
	}
	if in, there := f.world.Instance(before); !there || in.Power != v1alpha1.PowerRunning {
		t.Errorf("the machine is %+v", f.world.Instances())
	}
}

// A machine and its disk that were both taken over belong together as before, and the disk says so.
func TestRestoredWithADisk(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	withDisk := func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "data"}}
	}
	d := f.disk("")
	before := f.machine(v1alpha1.RunPolicyAlwaysOn, withDisk)
	f.settle()
	f.is("Running True/AsWanted")

	f.Must(f.api.Delete(f.Context(), d))
	d = f.disk(v1alpha1.AnnotationTakeOver)
	vm := f.vm()
	vm.Finalizers = nil
	f.Must(f.api.Update(f.Context(), vm))
	f.Must(f.api.Delete(f.Context(), vm))
	f.restart()
	uid := f.machine(v1alpha1.RunPolicyAlwaysOn, withDisk)
	f.settle()
	f.is("Pending False/OwnedByAnother")
	f.annotate(v1alpha1.AnnotationTakeOver, uid)
	f.settle()
	f.is("Running True/AsWanted")
	if in, _ := f.world.Instance(uid); len(f.world.Instances()) != 1 || len(in.Disks) != 1 || in.Disks[0].UID != d.UID || uid == before {
		t.Errorf("the machines are %+v", f.world.Instances())
	}
	f.Must(f.api.Get(f.Context(), client.ObjectKeyFromObject(d), d))
	if by := d.Status.AttachedTo; by == nil || by.UID != uid {
		t.Errorf("the disk is attached to %+v", by)
	}
}

// disk makes the VirtualDisk data, and its disk, or takes it over.
func (f *fixture) disk(annotation string) *v1alpha1.VirtualDisk {
	f.Helper()
	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "data"},
		Spec:       v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}}},
	}
	f.Must(f.api.Create(f.Context(), d))
	if annotation != "" {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotation, string(d.UID))
		f.Must(f.api.Update(f.Context(), d))
	}
	id, err := f.world.Client("them").EnsureDisk(f.Context(), runtime.DiskOf(d))
	f.Must(err)
	d.Status.DiskID = id
	f.Must(f.api.Status().Update(f.Context(), d))
	return d
}
