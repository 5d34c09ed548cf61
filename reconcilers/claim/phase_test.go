package claim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
	tools := func(state v1alpha1.ToolsState, seenIn string) v1alpha1.VirtualMachineStatus {
		return v1alpha1.VirtualMachineStatus{Incarnation: "2", Guest: &v1alpha1.GuestStatus{ToolsState: state, ToolsSeenIn: seenIn}}
	}
	waits := func(instance string) v1alpha1.VirtualMachineStatus {
		return v1alpha1.VirtualMachineStatus{InstanceID: instance, Conditions: []metav1.Condition{{Type: "ImageReady", Status: metav1.ConditionFalse}}}
	}
	asked := func(power v1alpha1.PowerState, inFlight ...runtime.Task) *runtime.Observation {
		o := seen(power, inFlight...)
		o.Question = &v1alpha1.PendingQuestion{Text: "Moved or copied?"}
		return o
	}
	for name, tc := range map[string]struct {
		status  v1alpha1.VirtualMachineStatus
		deleted bool
		seen    *runtime.Observation
		reached bool
		want    v1alpha1.VirtualMachinePhase
	}{
		"free and on":                        {seen: seen("Running"), want: "Running"},
		"on, and its tools have stopped":     {status: tools("NotRunning", "2"), seen: seen("Running"), want: "Degraded"},
		"on, and its tools are removed":      {status: tools("NotInstalled", "2"), seen: seen("Running"), want: "Degraded"},
		"on, and its tools run":              {status: tools("Running", "2"), seen: seen("Running"), want: "Running"},
		"on, and its tools start":            {status: tools("Starting", "2"), seen: seen("Running"), want: "Running"},
		"on, and its guest still boots":      {status: tools("NotRunning", "1"), seen: seen("Running"), want: "Running"},
		"on, and never had tools":            {status: tools("NotInstalled", ""), seen: seen("Running"), want: "Running"},
		"on, and asked about":                {seen: asked("Running"), want: "Degraded"},
		"off, and asked about":               {seen: asked("Stopped"), want: "Stopped"},
		"asked about while a Start holds it": {status: held("Start"), seen: asked("Running", task), want: "Starting"},
		"free and off":                       {seen: seen("Stopped"), want: "Stopped"},
		"free and paused":                    {seen: seen("Paused"), want: "Paused"},
		"free and not there":                 {seen: seen(""), want: "Pending"},
		"lost":                               {status: v1alpha1.VirtualMachineStatus{InstanceID: "i"}, seen: seen(""), want: "Failed"},
		"without its image":                  {status: waits(""), seen: seen(""), want: "WaitingForImage"},
		"without its image, and held":        {status: held("Restart"), seen: seen(""), want: "Stopping"},
		"without its image, and being made":  {status: waits(""), seen: seen("", task), want: "Provisioning"},
		"lost, and without its image":        {status: waits("i"), seen: seen(""), want: "Failed"},
		"there, and once without its image":  {status: waits("i"), seen: seen("Stopped"), want: "Stopped"},
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

// What a guest says is shown as long as it says it, and which incarnation it had tools in is kept.
func TestRecordOfAGuest(t *testing.T) {
	vm := &v1alpha1.VirtualMachine{}
	on := func(incarnation string, guest runtime.Guest) *runtime.Observation {
		return &runtime.Observation{Exists: true, InstanceID: "i", Power: v1alpha1.PowerRunning, Incarnation: incarnation, Guest: guest}
	}
	for _, step := range []struct {
		what      string
		seen      *runtime.Observation
		phase     v1alpha1.VirtualMachinePhase
		addresses []string
		guest     *v1alpha1.GuestStatus
	}{
		{"boots", on("1", runtime.Guest{Tools: "NotRunning"}), "Running", nil, &v1alpha1.GuestStatus{ToolsState: "NotRunning"}},
		{"is up", on("1", runtime.Guest{Tools: "Running", Hostname: "web", Addresses: []string{"10.0.0.7"}}), "Running", []string{"10.0.0.7"},
			&v1alpha1.GuestStatus{ToolsState: "Running", Hostname: "web", ToolsSeenIn: "1"}},
		{"loses its tools", on("1", runtime.Guest{Tools: "NotRunning"}), "Degraded", nil,
			&v1alpha1.GuestStatus{ToolsState: "NotRunning", ToolsSeenIn: "1"}},
		{"was off and on", on("2", runtime.Guest{Tools: "NotRunning"}), "Running", nil,
			&v1alpha1.GuestStatus{ToolsState: "NotRunning", ToolsSeenIn: "1"}},
		{"says nothing", on("2", runtime.Guest{}), "Running", nil, nil},
		{"is gone", &runtime.Observation{Guest: runtime.Guest{}}, "Failed", nil, nil},
	} {
		Record(vm, step.seen, false)
		if diff := cmp.Diff([]any{step.phase, step.addresses, step.guest}, []any{vm.Status.Phase, vm.Status.Addresses, vm.Status.Guest}); diff != "" {
			t.Errorf("a guest that %s (-want +got):\n%s", step.what, diff)
		}
	}
}
