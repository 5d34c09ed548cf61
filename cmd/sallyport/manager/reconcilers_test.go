package manager

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func machineOn(r v1alpha1.VirtualMachineRuntime) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{Spec: v1alpha1.VirtualMachineSpec{Runtime: r}}
	vm.Name, vm.UID = "vm", "uid"
	return vm
}

// Whatever runtime is handed to a reconciler, it waits as the handover says, and its calls are counted.
func TestRuntimesKeepTheLimits(t *testing.T) {
	vm := machineOn(v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}})
	left := time.Second
	registry := prometheus.NewRegistry()
	world := Runtimes{Machine: func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) {
		return runtime.NewClient(fake.New().Client("c")), nil
	}}
	rt, err := world.within(runtime.Limits{Wait: func() time.Duration { return left }}, registry).Machine(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Ensure(t.Context(), runtime.MachineOf(vm)); !runtime.IsTakingOver(err) {
		t.Errorf("while it waits: got %v", err)
	}
	left = 0
	if _, err := rt.Ensure(t.Context(), runtime.MachineOf(vm)); err != nil {
		t.Errorf("got %v", err)
	}
	want := `# HELP sallyport_runtime_calls_total Total number of calls to runtimes, by runtime, verb and outcome.
# TYPE sallyport_runtime_calls_total counter
sallyport_runtime_calls_total{outcome="success",runtime="pod",verb="Ensure"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "sallyport_runtime_calls_total"); err != nil {
		t.Error(err)
	}
	only, err := world.within(runtime.Limits{}, prometheus.NewRegistry()).halted(func(context.Context) error { return runtime.ErrReadOnly }).Machine(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := only.Ensure(t.Context(), runtime.MachineOf(vm)); !runtime.IsReadOnly(err) {
		t.Errorf("read-only: got %v", err)
	}
	if _, err := only.Observe(t.Context(), runtime.MachineOf(vm)); err != nil {
		t.Errorf("read-only: got %v", err)
	}
	none := Runtimes{Machine: machines{}.runtime}.within(runtime.Limits{}, prometheus.NewRegistry())
	if _, err := none.Machine(t.Context(), vm); !runtime.IsNotSupported(err) {
		t.Errorf("without a runtime: got %v", err)
	}
}
