package virtualmachine

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// An operation does not power a machine on without its disks either: it says what it waits for, and goes on when they are there.
func TestStartWaitsForDisks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.machine(v1alpha1.RunPolicyManual, func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "data"}}
	})
	f.settle()
	f.ask("start-1", "Start")
	f.settle()
	if got := f.state("start-1"); got != "InProgress/InProgress" ||
		!strings.Contains(f.completed("start-1"), "waiting for VirtualDisk data") {
		t.Errorf("it is %s: %s", got, f.completed("start-1"))
	}
	for _, e := range f.world.Effects() {
		if e.Kind == fake.PoweredOn {
			t.Fatal("it was powered on without its disk")
		}
	}

	d := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "data"},
		Spec:       v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}}},
	}
	f.Must(f.api.Create(f.Context(), d))
	id, err := f.world.Client("them").EnsureDisk(f.Context(), runtime.DiskOf(d))
	f.Must(err)
	d.Status.DiskID = id
	f.Must(f.api.Status().Update(f.Context(), d))
	f.settle()
	if got := f.state("start-1"); got != "Completed/Succeeded" {
		t.Errorf("it is %s: %s", got, f.completed("start-1"))
	}
	if disks := f.vm().Status.Disks; len(disks) != 1 || disks[0].UID != d.UID {
		t.Errorf("it has %v", disks)
	}
}
