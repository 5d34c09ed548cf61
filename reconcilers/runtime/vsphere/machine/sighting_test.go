package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// What failed last is what ended last, whatever was asked for since and goes on.
func TestLastFailure(t *testing.T) {
	ended := func(second int64, state types.TaskInfoState) types.TaskInfo {
		return types.TaskInfo{State: state, CompleteTime: new(time.Unix(second, 0))}
	}
	failed, done := types.TaskInfoStateError, types.TaskInfoStateSuccess
	for name, tc := range map[string]struct {
		tasks []types.TaskInfo
		fails bool
	}{
		"nothing was done":                        {nil, false},
		"it failed":                               {[]types.TaskInfo{ended(1, done), ended(2, failed)}, true},
		"it was done after it had failed":         {[]types.TaskInfo{ended(1, failed), ended(2, done)}, false},
		"it ended last, and was asked for before": {[]types.TaskInfo{ended(2, failed), ended(1, done)}, true},
		"something goes on since":                 {[]types.TaskInfo{ended(1, failed), {State: types.TaskInfoStateRunning}}, true},
	} {
		s := sighting{tasks: tc.tasks}
		if got := s.lastFailure(); (got != "") != tc.fails {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A vCenter that answers with what was not asked for is not taken to show a task of which nothing is known.
func TestOnlyWhatWasAskedFor(t *testing.T) {
	var tasks []string
	each := session.Only(func(task mo.Task) { tasks = append(tasks, task.Info.DescriptionId) })
	for _, object := range []any{mo.HostSystem{}, mo.Task{Info: types.TaskInfo{DescriptionId: "clone"}}, nil} {
		each(object)
	}
	if diff := cmp.Diff([]string{"clone"}, tasks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
