package review

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/webhooks/replay"
)

// replays puts all that the policies were asked to them again, from the records. They must say the same, whatever the requests
// were: errors, warnings, patches and questions about rights too. It is for after the last request.
func (c *cluster) replays(t *testing.T) {
	c.recorder.Close(time.Minute)
	day := c.records.Bytes()
	input := replay.Input{Name: "requests", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(day)), nil }}
	summary, err := replay.New(c.set).Replay(t.Context(), []replay.Input{input}, func(r *replay.Result) error {
		failed := slices.ContainsFunc(r.Unknown, func(u replay.Unknown) bool { return u.Cause == replay.FailedThen }) // as whatever wants a test run here
		if r.Problem != "" || r.Flips() || len(r.Unknown) > 0 && !failed {
			t.Errorf("line %d: %s %+v, undecided %+v", r.Line, r.Problem, r.Changes, r.Unknown)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if summary.Decisions < 300 || summary.Others > 0 {
		t.Errorf("the requests left few decisions: %+v", summary)
	}
	for _, word := range []string{"denied", "warned", "error_denied", "error_allowed"} {
		if !strings.Contains(string(day), `"verdict":"`+word+`"`) {
			t.Errorf("nothing was %s", word)
		}
	}
	t.Logf("%d decisions replayed", summary.Decisions)
}
