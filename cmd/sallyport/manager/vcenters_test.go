package manager

import (
	"context"
	"testing"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// An admission is remembered for what it rests on and no longer: a VSphereServer that was made anew, with the same name and
// generation, says anew who may use it.
func TestAdmissionsToLookAreForgotten(t *testing.T) {
	scheme := kruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	asked, now := 0, time.Unix(1_000_000, 0)
	vm := &v1alpha1.VirtualMachine{Spec: v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{
		VSphere: &v1alpha1.VSphereRuntime{ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}},
	}}}
	vm.UID = "machine"
	v := &vcenters{now: func() time.Time { return now }}
	for _, step := range []struct {
		name            string
		machine, server int64
		uid             types.UID
		passes          time.Duration
		asks            bool
	}{
		{"at first", 1, 1, "a", 0, true},
		{"nothing has changed", 1, 1, "a", admittedFor - time.Second, false},
		{"the machine has changed", 2, 1, "a", 0, true},
		{"the VSphereServer has changed", 2, 2, "a", 0, true},
		{"the VSphereServer was made anew", 2, 2, "b", 0, true},
		{"time has passed", 2, 2, "b", admittedFor, true},
		{"there is no VSphereServer", 2, 0, "", 0, true},
	} {
		now = now.Add(step.passes)
		objects := fake.NewClientBuilder().WithScheme(scheme)
		if step.uid != "" {
			server := &v1alpha1.VSphereServer{}
			server.Name, server.UID, server.Generation = "vc", step.uid, step.server
			objects = objects.WithObjects(server)
		}
		v.cached, vm.Generation, asked = objects.Build(), step.machine, 0
		err := v.stillMay(t.Context(), vm, runtime.Machine{}, func(context.Context, runtime.Machine) error {
			asked++
			return nil
		})
		if err != nil || (asked == 1) != step.asks {
			t.Errorf("%s: asked %d times, error %v", step.name, asked, err)
		}
	}
}
