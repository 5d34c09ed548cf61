package operation

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Operations that wait are counted by type and phase, and finished ones are not.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	f := newFixture(t, v1alpha1.PowerStopped)
	elected := make(chan struct{})
	close(elected)
	ours := client.NewNamespacedClient(f.api, f.namespace) // other tests have operations in other namespaces
	shows := func(want string) {
		t.Helper()
		const help = "# HELP sallyport_operations_unfinished Number of VirtualMachineOperations that have not finished, by type and phase.\n" +
			"# TYPE sallyport_operations_unfinished gauge\n"
		if want != "" {
			want = help + want
		}
		if err := testutil.CollectAndCompare(Unfinished(ours, elected), strings.NewReader(want), "sallyport_operations_unfinished"); err != nil {
			t.Error(err)
		}
	}
	release := f.world.Hold(f.uid, runtime.TaskPowerOn)
	f.ask("start", "Start")
	shows(`sallyport_operations_unfinished{phase="Pending",type="Start"} 1` + "\n")
	f.until("start", "InProgress/InProgress")
	shows(`sallyport_operations_unfinished{phase="InProgress",type="Start"} 1` + "\n")
	release()
	f.until("start", "Completed/Succeeded")
	shows("")
}
