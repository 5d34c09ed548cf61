package virtualmachine

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Machines that wait for their images are counted by reason, with the time of the one that waits for longest. No other machine is listed.
func TestMetricsOfWaitingMachines(t *testing.T) {
	scheme := kruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := fakeclient.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.VirtualMachine{}, byWaiting, waitingKeys)
	for name, m := range map[string]struct {
		phase  v1alpha1.VirtualMachinePhase
		reason v1alpha1.ConditionReason
		since  int64
	}{
		"a": {v1alpha1.VirtualMachineWaitingForImage, v1alpha1.ReasonImageImporting, 300},
		"b": {v1alpha1.VirtualMachineWaitingForImage, v1alpha1.ReasonImageImporting, 200},
		"c": {v1alpha1.VirtualMachineWaitingForImage, v1alpha1.ReasonImageMissing, 100},
		"d": {v1alpha1.VirtualMachineRunning, v1alpha1.ReasonImageMissing, 1},
	} {
		vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		vm.Status.Phase = m.phase
		c := v1alpha1.ConditionImageReady.Condition(metav1.ConditionFalse, m.reason, 1, "")
		c.LastTransitionTime = metav1.NewTime(time.Unix(m.since, 0))
		vm.Status.Conditions = []metav1.Condition{c}
		objects.WithObjects(vm)
	}
	elected, registry := make(chan struct{}), prometheus.NewRegistry()
	close(elected)
	registry.MustRegister(collector(objects.Build(), elected))
	const want = `# HELP sallyport_machines_waiting_for_image Number of VirtualMachines in phase WaitingForImage, by the reason of their condition ImageReady.
# TYPE sallyport_machines_waiting_for_image gauge
sallyport_machines_waiting_for_image{reason="ImageImporting"} 2
sallyport_machines_waiting_for_image{reason="ImageMissing"} 1
# HELP sallyport_machines_waiting_for_image_since_timestamp_seconds Since when the VirtualMachine in phase WaitingForImage that waits for longest waits, by the reason of its condition ImageReady, in seconds since 1970.
# TYPE sallyport_machines_waiting_for_image_since_timestamp_seconds gauge
sallyport_machines_waiting_for_image_since_timestamp_seconds{reason="ImageImporting"} 200
sallyport_machines_waiting_for_image_since_timestamp_seconds{reason="ImageMissing"} 100
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
