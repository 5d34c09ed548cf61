package machine

import (
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

func TestKinds(t *testing.T) {
	task := func(id string, state types.TaskInfoState) types.TaskInfo {
		return types.TaskInfo{DescriptionId: id, State: state}
	}
	for id, want := range map[string]runtime.TaskKind{
		"VirtualMachine.powerOn":         runtime.TaskPowerOn,
		"Datacenter.ExecuteVmPowerOnLRO": runtime.TaskPowerOn,
		"VirtualMachine.powerOff":        runtime.TaskPowerOff,
		"VirtualMachine.migrate":         runtime.TaskRelocate,
		"Drm.ExecuteVMotionLRO":          runtime.TaskRelocate,
		"VirtualMachine.destroy":         runtime.TaskDelete,
		"VirtualMachine.clone":           runtime.TaskOther,
		"com.example.backup":             runtime.TaskOther,
		"":                               runtime.TaskOther,
	} {
		s := &sighting{tasks: []types.TaskInfo{
			task("VirtualMachine.shutdownGuest", types.TaskInfoStateRunning), // Not in flight, as the contract has it.
			task("VirtualMachine.powerOff", types.TaskInfoStateSuccess),
			task(id, types.TaskInfoStateQueued),
		}}
		if all := s.inFlight(); len(all) != 1 || kindOf(all[0]) != want {
			t.Errorf("%q: got %+v, want one of kind %s", id, all, want)
		}
	}
}

// Only what a note announced and vCenter queued for our own user is ours; who else began a task is named.
func TestWhoseTasks(t *testing.T) {
	noted := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	s := &sighting{user: `LAB\sallyport`, extraConfig: map[string]string{
		PowerOnsKey: powerOns{count: 3, at: noted}.String(),
		MoveKey:     move{at: noted.Add(time.Hour), incarnation: "3@1", host: "esx-2"}.String(),
	}}
	user := func(name string) types.BaseTaskReason { return &types.TaskReasonUser{UserName: name} }
	for name, tc := range map[string]struct {
		kind   string
		after  time.Duration
		reason types.BaseTaskReason
		ours   bool
		by     string
	}{
		"our power-on":                            {"powerOn", time.Second, user(`lab\Sallyport`), true, ""},
		"our move":                                {"relocate", time.Hour, user(s.user), true, ""},
		"another user's, soon after our note":     {"powerOn", time.Second, user(`LAB\admin`), false, `user "LAB\\admin"`},
		"DRS's move, soon after our note":         {"ExecuteVMotionLRO", time.Hour, &types.TaskReasonSystem{}, false, "vCenter itself"},
		"a schedule's":                            {"powerOn", time.Second, &types.TaskReasonSchedule{Name: "nightly"}, false, `scheduled task "nightly"`},
		"an alarm's, with a name to print":        {"relocate", time.Hour, &types.TaskReasonAlarm{AlarmName: "cpu\x1b[2J"}, false, `alarm "cpu\x1b[2J"`},
		"our account's, before our note":          {"powerOn", -time.Minute, user(s.user), false, ""},
		"our account's, long after our note":      {"powerOn", time.Minute, user(s.user), false, ""},
		"our account's, of a kind without a note": {"powerOff", time.Second, user(s.user), false, ""},
		"nobody knows whose":                      {"powerOn", time.Second, nil, false, ""},
	} {
		info := types.TaskInfo{DescriptionId: "VirtualMachine." + tc.kind, QueueTime: noted.Add(tc.after), Reason: tc.reason}
		if ours, by := s.ours(info), s.by(info); ours != tc.ours || by != tc.by {
			t.Errorf("%s: got ours %v, by %q; want %v, %q", name, ours, by, tc.ours, tc.by)
		}
	}
	s.user = ""
	if s.ours(types.TaskInfo{DescriptionId: "VirtualMachine.powerOn", QueueTime: noted, Reason: user("")}) {
		t.Error("without a user of ours there is a task of ours")
	}
}
