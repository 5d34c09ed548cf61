package offline

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What two change one after the other is told as one change, of what was sent into what became of it, and by whom last.
func TestChangesOfOneField(t *testing.T) {
	spec := func(value any) map[string]any {
		if value == nil {
			return map[string]any{"spec": map[string]any{}}
		}
		return map[string]any{"spec": map[string]any{"a": value}}
	}
	for name, tc := range map[string]struct {
		sent, first, then any
		want              []Change
	}{
		"added and changed":   {nil, "1", "2", []Change{{Op: "add", Path: "spec.a", New: "2", By: "server"}}},
		"added and removed":   {nil, "1", nil, nil},
		"changed and removed": {"1", "2", nil, []Change{{Op: "remove", Path: "spec.a", Old: "1", By: "server"}}},
		"changed twice":       {"1", "2", "3", []Change{{Op: "change", Path: "spec.a", Old: "1", New: "3", By: "server"}}},
		"changed and back":    {"1", "2", "1", nil},
		"removed and added":   {"1", nil, "2", []Change{{Op: "change", Path: "spec.a", Old: "1", New: "2", By: "server"}}},
	} {
		p := &pending{sent: spec(tc.sent), stages: []stage{{"schema", spec(tc.first)}, {"server", spec(tc.then)}}}
		if diff := cmp.Diff(tc.want, p.changes(), cmpopts.IgnoreUnexported(Change{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
