package operation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

func of(what v1alpha1.OperationType, force bool, step v1alpha1.OperationStep) *v1alpha1.VirtualMachineOperation {
	return &v1alpha1.VirtualMachineOperation{
		Spec:   v1alpha1.VirtualMachineOperationSpec{Type: what, Force: force},
		Status: v1alpha1.VirtualMachineOperationStatus{Step: step, Baseline: &v1alpha1.OperationBaseline{Incarnation: "i-1", NodeName: "node-1"}},
	}
}

// Only who gets the machine off, and does not force it, asks the guest.
func TestWhatTheRuntimeIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		operation *v1alpha1.VirtualMachineOperation
		asks      bool
		verb      string
	}{
		"Stop":                       {of(v1alpha1.OperationStop, false, ""), true, "ask the guest to shut down"},
		"forced Stop":                {of(v1alpha1.OperationStop, true, ""), false, "power off"},
		"first half of Restart":      {of(v1alpha1.OperationRestart, false, v1alpha1.StepPowerOff), true, "ask the guest to shut down"},
		"first half, forced":         {of(v1alpha1.OperationRestart, true, v1alpha1.StepPowerOff), false, "power off"},
		"second half of Restart":     {of(v1alpha1.OperationRestart, false, v1alpha1.StepPowerOn), false, "power on"},
		"second half, forced":        {of(v1alpha1.OperationRestart, true, v1alpha1.StepPowerOn), false, "power on"},
		"Start":                      {of(v1alpha1.OperationStart, false, ""), false, "power on"},
		"Migrate":                    {of(v1alpha1.OperationMigrate, false, ""), false, "move the machine"},
		"Evict":                      {of(v1alpha1.OperationEvict, false, ""), false, "move the machine"},
		"Migrate that a Step is not": {of(v1alpha1.OperationMigrate, false, v1alpha1.StepPowerOff), false, "move the machine"},
	} {
		if asks, told := asksGuest(tc.operation), verb(tc.operation); asks != tc.asks || told != tc.verb {
			t.Errorf("%s: asks the guest: %t, is told to %s", name, asks, told)
		}
	}
}

// Each operation has a goal of its own, and people read what the machine is like then.
func TestGoals(t *testing.T) {
	to := func(node string) *v1alpha1.VirtualMachineOperation {
		o := of(v1alpha1.OperationMigrate, false, "")
		o.Spec.Migrate = &v1alpha1.MigrateTarget{NodeName: node}
		return o
	}
	nowhere := of(v1alpha1.OperationEvict, false, "")
	nowhere.Status.Baseline.NodeName = ""
	on := runtime.Observation{Exists: true, Power: v1alpha1.PowerRunning, Incarnation: "i-1", NodeName: "node-1"}
	off := runtime.Observation{Exists: true, Power: v1alpha1.PowerStopped, Incarnation: "i-1", NodeName: "node-1"}
	again, moved, unplaced := on, on, on
	again.Incarnation, moved.NodeName, unplaced.NodeName = "i-2", "node-2", ""
	for name, tc := range map[string]struct {
		operation *v1alpha1.VirtualMachineOperation
		seen      runtime.Observation
		reached   bool
		achieved  string
	}{
		"Start, on":                     {of(v1alpha1.OperationStart, false, ""), on, true, "the machine is on"},
		"Start, off":                    {of(v1alpha1.OperationStart, false, ""), off, false, "the machine is off"},
		"Stop, on":                      {of(v1alpha1.OperationStop, false, ""), on, false, "the machine is on"},
		"Stop, off":                     {of(v1alpha1.OperationStop, false, ""), off, true, "the machine is off"},
		"Stop of none":                  {of(v1alpha1.OperationStop, false, ""), runtime.Observation{}, true, "there is no machine that could be on"},
		"Restart, still on":             {of(v1alpha1.OperationRestart, false, ""), on, false, "the machine was off, and is on again"},
		"Restart, off":                  {of(v1alpha1.OperationRestart, false, ""), off, false, "the machine is off"},
		"Restart, on again":             {of(v1alpha1.OperationRestart, false, ""), again, true, "the machine was off, and is on again"},
		"Migrate to where it is not":    {to("node-2"), on, false, "the machine is on node node-1"},
		"Migrate to where it is":        {to("node-2"), moved, true, "the machine is on node node-2"},
		"Migrate to any, there still":   {to(""), on, false, "the machine is on node node-1"},
		"Evict, there still":            {of(v1alpha1.OperationEvict, false, ""), on, false, "the machine is on node node-1"},
		"Evict, on no node":             {of(v1alpha1.OperationEvict, false, ""), unplaced, false, "the machine is on"},
		"Evict, moved":                  {of(v1alpha1.OperationEvict, false, ""), moved, true, "the machine is on node node-2"},
		"Evict of one that was nowhere": {nowhere, unplaced, true, "the machine is on"},
	} {
		if got, text := reached(tc.operation, tc.seen), achieved(tc.operation, tc.seen); got != tc.reached || text != tc.achieved {
			t.Errorf("%s: reached: %t, %s", name, got, text)
		}
	}
}

// Only what the runtime said it cannot do is without hope, and an attempt has failed before only if it was sent.
func TestWhatConditionsSay(t *testing.T) {
	sent := func(status metav1.ConditionStatus, reason v1alpha1.ConditionReason) metav1.Condition {
		return metav1.Condition{Type: string(v1alpha1.ConditionSignalSent), Status: status, Reason: string(reason)}
	}
	completed := func(reason v1alpha1.ConditionReason) metav1.Condition {
		return metav1.Condition{Type: string(v1alpha1.ConditionCompleted), Status: metav1.ConditionFalse, Reason: string(reason)}
	}
	for name, tc := range map[string]struct {
		conditions       []metav1.Condition
		hopeless, failed bool
	}{
		"nothing":              {nil, false, false},
		"sent":                 {[]metav1.Condition{sent(metav1.ConditionTrue, v1alpha1.ReasonSent)}, false, false},
		"the runtime cannot":   {[]metav1.Condition{sent(metav1.ConditionFalse, v1alpha1.ReasonRuntimeFailed)}, true, false},
		"sent, and failed":     {[]metav1.Condition{sent(metav1.ConditionTrue, v1alpha1.ReasonSent), completed(v1alpha1.ReasonAttemptFailed)}, false, true},
		"sent, and goes on":    {[]metav1.Condition{sent(metav1.ConditionTrue, v1alpha1.ReasonSent), completed(v1alpha1.ReasonInProgress)}, false, false},
		"failed, being sent":   {[]metav1.Condition{sent(metav1.ConditionUnknown, v1alpha1.ReasonSending), completed(v1alpha1.ReasonAttemptFailed)}, false, false},
		"failed, nothing sent": {[]metav1.Condition{completed(v1alpha1.ReasonAttemptFailed)}, false, false},
	} {
		o := of(v1alpha1.OperationMigrate, false, "")
		o.Status.Conditions = tc.conditions
		if hopeless, failed := (&look{}).hopeless(o), failedBefore(o); hopeless != tc.hopeless || failed != tc.failed {
			t.Errorf("%s: hopeless: %t, failed before: %t", name, hopeless, failed)
		}
	}
}
