package drive

import (
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

func of(what v1alpha1.OperationType, force bool, step v1alpha1.OperationStep) *plan {
	return &plan{
		Intent: Intent{Type: what, Force: force},
		Record: Record{Step: step, Was: &v1alpha1.OperationBaseline{Incarnation: "i-1", NodeName: "node-1"}},
	}
}

// Only who gets the machine off, and does not force it, asks the guest.
func TestWhatTheRuntimeIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		plan *plan
		asks bool
		verb string
	}{
		"Stop":                       {of(v1alpha1.OperationStop, false, ""), true, "guest shutdown request"},
		"forced Stop":                {of(v1alpha1.OperationStop, true, ""), false, "power-off"},
		"first half of Restart":      {of(v1alpha1.OperationRestart, false, v1alpha1.StepPowerOff), true, "guest shutdown request"},
		"first half, forced":         {of(v1alpha1.OperationRestart, true, v1alpha1.StepPowerOff), false, "power-off"},
		"second half of Restart":     {of(v1alpha1.OperationRestart, false, v1alpha1.StepPowerOn), false, "power-on"},
		"second half, forced":        {of(v1alpha1.OperationRestart, true, v1alpha1.StepPowerOn), false, "power-on"},
		"Start":                      {of(v1alpha1.OperationStart, false, ""), false, "power-on"},
		"Migrate":                    {of(v1alpha1.OperationMigrate, false, ""), false, "migration request"},
		"Evict":                      {of(v1alpha1.OperationEvict, false, ""), false, "migration request"},
		"Migrate that a Step is not": {of(v1alpha1.OperationMigrate, false, v1alpha1.StepPowerOff), false, "migration request"},
	} {
		if asks, told := tc.plan.asksGuest(), tc.plan.verb(); asks != tc.asks || told != tc.verb {
			t.Errorf("%s: asks the guest: %t, is told to %s", name, asks, told)
		}
	}
}

// Each operation has a goal of its own, and people read what the machine is like then.
func TestGoals(t *testing.T) {
	to := func(node string) *plan {
		p := of(v1alpha1.OperationMigrate, false, "")
		p.Target.NodeName = node
		return p
	}
	nowhere := of(v1alpha1.OperationEvict, false, "")
	nowhere.Was.NodeName = ""
	on := runtime.Observation{Exists: true, Power: v1alpha1.PowerRunning, Incarnation: "i-1", NodeName: "node-1"}
	off := runtime.Observation{Exists: true, Power: v1alpha1.PowerStopped, Incarnation: "i-1", NodeName: "node-1"}
	again, moved, unplaced := on, on, on
	again.Incarnation, moved.NodeName, unplaced.NodeName = "i-2", "node-2", ""
	for name, tc := range map[string]struct {
		plan     *plan
		seen     runtime.Observation
		reached  bool
		achieved string
	}{
		"Start, on":                     {of(v1alpha1.OperationStart, false, ""), on, true, "the machine is on"},
		"Start, off":                    {of(v1alpha1.OperationStart, false, ""), off, false, "the machine is off"},
		"Stop, on":                      {of(v1alpha1.OperationStop, false, ""), on, false, "the machine is on"},
		"Stop, off":                     {of(v1alpha1.OperationStop, false, ""), off, true, "the machine is off"},
		"Stop of none":                  {of(v1alpha1.OperationStop, false, ""), runtime.Observation{}, true, "the machine does not exist, so it is already off"},
		"Restart, still on":             {of(v1alpha1.OperationRestart, false, ""), on, false, "the machine was powered off and is on again"},
		"Restart, off":                  {of(v1alpha1.OperationRestart, false, ""), off, false, "the machine is off"},
		"Restart, on again":             {of(v1alpha1.OperationRestart, false, ""), again, true, "the machine was powered off and is on again"},
		"Migrate to where it is not":    {to("node-2"), on, false, "the machine is on node node-1"},
		"Migrate to where it is":        {to("node-2"), moved, true, "the machine is on node node-2"},
		"Migrate to any, there still":   {to(""), on, false, "the machine is on node node-1"},
		"Evict, there still":            {of(v1alpha1.OperationEvict, false, ""), on, false, "the machine is on node node-1"},
		"Evict, on no node":             {of(v1alpha1.OperationEvict, false, ""), unplaced, false, "the machine is on"},
		"Evict, moved":                  {of(v1alpha1.OperationEvict, false, ""), moved, true, "the machine is on node node-2"},
		"Evict of one that was nowhere": {nowhere, unplaced, true, "the machine is on"},
	} {
		tc.plan.seen = tc.seen
		if got, text := tc.plan.reached(), tc.plan.achieved(); got != tc.reached || text != tc.achieved {
			t.Errorf("%s: reached: %t, %s", name, got, text)
		}
	}
}
