package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/replay"
)

// edited gives the policies with their tables, of which a change may edit the first.
func edited(t *testing.T, change func(*shipped.Tables)) ([]v1alpha1.RegoPolicy, shipped.Tables) {
	t.Helper()
	objects := shippedPolicies(t)
	all, err := shipped.TablesOf(objects)
	if err != nil {
		t.Fatal(err)
	}
	change(&all)
	raw, err := json.Marshal(map[string]any{"supersededBy": all.SupersededBy})
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		if objects[i].Name == "operations-supersede" {
			objects[i].Spec.Parameters.Raw = raw
		}
	}
	return objects, all
}

// flip is what is to be known of one.
type flip struct {
	Endpoint, Name, User string
	Was, Would           replay.Verdict
	Gone, New            string
}

// wanted are the flips that the tables tell, without any policy being asked.
func wanted(before, after shipped.Tables) map[flip]int {
	all := map[flip]int{}
	for _, r := range requests() {
		yielded, yields := slices.Contains(before.SupersededBy[r.running], r.new), slices.Contains(after.SupersededBy[r.running], r.new)
		if yielded == yields {
			continue
		}
		f := flip{Name: r.name(), User: r.who, Was: replay.Denied, Would: replay.Denied, New: "OperationInProgress"}
		if yields {
			f.Gone, f.New = f.New, ""
		}
		if slices.Contains(before.Phases[r.phase], r.new) && slices.Contains(before.RunPolicies["Manual"], r.new) {
			f.Was, f.Would = replay.Admitted, replay.Denied
			if yields {
				f.Was, f.Would = f.Would, f.Was
			}
		}
		f.Endpoint = "validate"
		all[f]++
		if r.who == people[0] {
			f.Endpoint = "arbitrate"
			all[f]++
		}
	}
	return all
}

// replayed gives the flips of a day under other policies.
func replayed(t *testing.T, day string, objects []v1alpha1.RegoPolicy) (map[flip]int, *replay.Summary) {
	t.Helper()
	flips := map[flip]int{}
	input := replay.Input{Name: "day.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(day)), nil }}
	replayer := replay.New(compiled(t, objects))
	begin := time.Now()
	summary, err := replayer.Replay(t.Context(), []replay.Input{input}, func(r *replay.Result) error {
		if r.Problem != "" || len(r.Unknown) > 0 || len(r.Changes) != 1 || r.Changes[0].Policy != "operations-supersede" {
			return fmt.Errorf("got %+v", r)
		}
		c := r.Changes[0]
		flips[flip{r.Endpoint, r.Name, r.User, r.Was, r.Would, reasons(c.Was), reasons(c.Would)}]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d decisions, %d MB, replayed in %v: %d flips", summary.Decisions, len(day)>>20, time.Since(begin).Round(time.Millisecond), summary.Flips)
	return flips, summary
}

func reasons(s *replay.Said) string {
	var all []string
	for _, d := range s.Denials {
		all = append(all, d.Reason)
	}
	return strings.Join(all, ",")
}

func TestReplayOfADay(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	day := newSite(t).live(t)
	decisions := strings.Count(day, "\n")
	if decisions < 4_000 {
		t.Errorf("the day has only %d decisions", decisions)
	}
	for _, word := range []string{`"confirmation":"confirmed"`, `"endpoint":"mutate"`, `"endpoint":"arbitrate"`, `"live":true`, `"verdict":"denied"`, `"OperationInProgress"`, `"PhaseForbids"`} {
		if !strings.Contains(day, word) {
			t.Errorf("no record has %s", word)
		}
	}
	objects, before := edited(t, func(*shipped.Tables) {})
	t.Run("the same policies decide the same", func(t *testing.T) {
		flips, s := replayed(t, day, objects)
		if s.Decisions != decisions || len(flips) > 0 || s.Undecided+s.Unreadable+s.Cut+s.Others > 0 {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("another table decides as it says", func(t *testing.T) {
		changed, after := edited(t, func(t *shipped.Tables) {
			t.SupersededBy = maps.Clone(t.SupersededBy)
			t.SupersededBy["Start"], t.SupersededBy["Stop"], t.SupersededBy["Stop force"] = []string{}, []string{"Restart"}, []string{"Start"}
			t.SupersededBy["Migrate"], t.SupersededBy["Evict force"] = []string{"Evict", "Stop"}, []string{}
		})
		want := wanted(before, after)
		got, s := replayed(t, day, changed)
		if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
			t.Errorf("flips (-want +got):\n%s", diff)
		}
		turns := map[replay.Verdict]int{}
		for f := range want {
			turns[f.Was+">"+f.Would]++
		}
		if len(turns) != 3 { // denied either way, for one reason less or more, and both turns
			t.Errorf("the change makes only %v", turns)
		}
		if s.Decisions != decisions || s.Undecided > 0 {
			t.Errorf("got %+v", s)
		}
	})
}
