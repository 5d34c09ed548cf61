package claim

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

func TestPhase(t *testing.T) {
	held := func(k v1alpha1.OperationType) v1alpha1.VirtualMachineStatus {
		return v1alpha1.VirtualMachineStatus{ActiveOperation: &v1alpha1.ActiveOperation{Type: k}, Phase: "Running"}
	}
	undone := func(k v1alpha1.OperationType) v1alpha1.VirtualMachineStatus {
		return v1alpha1.VirtualMachineStatus{Undoing: []v1alpha1.UndoingOperation{{Type: k}}, Phase: "Running"}
	}
	seen := func(power v1alpha1.PowerState, inFlight ...runtime.Task) *runtime.Observation {
		return &runtime.Observation{Exists: power != "", Power: power, InFlight: inFlight}
	}
	task := runtime.Task{Kind: runtime.TaskCreate}
	for name, tc := range map[string]struct {
		status  v1alpha1.VirtualMachineStatus
		deleted bool
		seen    *runtime.Observation
		reached bool
		want    v1alpha1.VirtualMachinePhase
	}{
		"free and on":                        {seen: seen("Running"), want: "Running"},
		"free and off":                       {seen: seen("Stopped"), want: "Stopped"},
		"free and paused":                    {seen: seen("Paused"), want: "Paused"},
		"free and not there":                 {seen: seen(""), want: "Pending"},
		"lost":                               {status: v1alpha1.VirtualMachineStatus{InstanceID: "i"}, seen: seen(""), want: "Failed"},
		"being made":                         {seen: seen("", task), want: "Provisioning"},
		"free and not looked at":             {status: v1alpha1.VirtualMachineStatus{Phase: "Running"}, want: "Running"},
		"a Start holds it":                   {status: held("Start"), want: "Starting"},
		"a Stop holds it":                    {status: held("Stop"), seen: seen("Running"), want: "Stopping"},
		"a Stop has got it off":              {status: held("Stop"), seen: seen("Stopped"), reached: true, want: "Stopped"},
		"the first half of a Restart":        {status: held("Restart"), seen: seen("Running"), want: "Stopping"},
		"the second half of a Restart":       {status: held("Restart"), seen: seen("Stopped"), want: "Starting"},
		"a Migrate holds it":                 {status: held("Migrate"), want: "Migrating"},
		"an Evict holds it":                  {status: held("Evict"), want: "Migrating"},
		"a deletion holds it":                {status: held("Delete"), want: "Terminating"},
		"a Start may still be in flight":     {status: undone("Start"), want: "Starting"},
		"a Start is in flight":               {status: undone("Start"), seen: seen("Stopped", task), want: "Starting"},
		"nothing of a Start is in flight":    {status: undone("Start"), seen: seen("Stopped"), want: "Stopped"},
		"being deleted, whoever may hold it": {status: held("Start"), deleted: true, seen: seen("Running"), want: "Terminating"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1alpha1.VirtualMachine{Status: tc.status}
			if tc.deleted {
				vm.DeletionTimestamp = &metav1.Time{}
				*vm.DeletionTimestamp = metav1.Now()
			}
			if got := Phase(vm, tc.seen, tc.reached); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
