package operation

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Each operation counts once, with how it ended; times are of those that got the machine, and of those that had to give it back.
func TestMetrics(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	registry := prometheus.NewRegistry()
	f.r.Metrics = NewMetrics(registry)
	release := f.world.Hold(f.uid, runtime.TaskPowerOn)
	f.ask("start", "Start")
	f.until("start", "InProgress/InProgress")
	f.ask("late", "Start")
	f.until("late", "Failed/OperationInProgress")
	f.ask("stop", "Stop force")
	f.pass()
	release()
	f.until("stop", "Completed/Succeeded")
	f.want("start", "Completed/Superseded")
	f.pass()
	want := `# HELP sallyport_operations_total Total number of finished VirtualMachineOperations, by type and result: Succeeded, Superseded, Denied (by a policy after the creation) or the reason of the failure.
# TYPE sallyport_operations_total counter
sallyport_operations_total{result="Denied",type="Start"} 1
sallyport_operations_total{result="Succeeded",type="Stop"} 1
sallyport_operations_total{result="Superseded",type="Start"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "sallyport_operations_total"); err != nil {
		t.Error(err)
	}
	got := map[string]uint64{}
	families, err := registry.Gather()
	f.Must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				got[family.GetName()+" "+m.GetLabel()[0].GetValue()] += h.GetSampleCount()
			}
		}
	}
	if len(got) != 3 || got["sallyport_operation_claim_seconds Start"] != 1 || got["sallyport_operation_claim_seconds Stop"] != 1 ||
		got["sallyport_operation_supersede_seconds Start"] != 1 {
		t.Errorf("timed were %v", got)
	}
}
