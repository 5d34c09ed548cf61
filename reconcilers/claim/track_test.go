package claim

import (
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A task is noted once, on the entry that waits for it; who is told that nothing was noted does not write.
func TestTrackNotesOnce(t *testing.T) {
	status := &v1alpha1.VirtualMachineStatus{Undoing: []v1alpha1.UndoingOperation{{ID: "a"}, {ID: "b"}}}
	for _, tc := range []struct {
		id, task string
		want     bool
	}{{"c", "t-1", false}, {"b", "", false}, {"b", "t-1", true}, {"b", "t-2", false}} {
		if got := Track(status, tc.id, tc.task); got != tc.want {
			t.Errorf("tracking %q of %s: got %t", tc.task, tc.id, got)
		}
	}
	if status.Undoing[0].Task != "" || status.Undoing[1].Task != "t-1" {
		t.Errorf("got %+v", status.Undoing)
	}
}
