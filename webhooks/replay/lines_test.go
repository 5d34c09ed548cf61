package replay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/webhooks/replay"
)

// day is the records of n requests, all of which were denied, and the policy that would deny them for another reason.
func day(t *testing.T, n int) (text string, replayer *replay.Replayer) {
	t.Helper()
	_, one, _ := strings.Cut(recorded(t, world{}, list(policy("p", deny("Red", "true"))), request(t, "cm-0", `{}`)), "\n") // the validation
	lines := make([]string, n)
	for i := range lines {
		lines[i] = strings.ReplaceAll(one, "cm-0", fmt.Sprintf("cm-%d", i))
	}
	return strings.Join(lines, ""), replay.New(compiled(t, policy("p", deny("Reddish", "true"))))
}

// all replays and puts what is told in a line each.
func all(t *testing.T, r *replay.Replayer, inputs ...replay.Input) ([]string, *replay.Summary) {
	t.Helper()
	var told []string
	summary, err := r.Replay(t.Context(), inputs, func(r *replay.Result) error {
		what := r.Problem
		if r.Decision != nil {
			what = r.Name
		}
		told = append(told, fmt.Sprintf("%s:%d %s", r.File, r.Line, what))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return told, summary
}

func zipped(t *testing.T, texts ...string) string {
	t.Helper()
	var out bytes.Buffer
	for _, text := range texts { // as rotated logs are put together
		w := gzip.NewWriter(&out)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// dockered is a line as Docker's driver json-file writes it.
func dockered(text, stream string) string {
	log, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"log":%s,"stream":%q,"time":"2026-11-20T10:00:00Z"}`+"\n", log, stream)
}

// Records are found among all that a log may hold, and one that is broken costs only itself.
func TestLines(t *testing.T) {
	text, r := day(t, 2)
	first, second, _ := strings.Cut(text, "\n")
	later := strings.Replace(first, `{"decisionRecord":1`, `{"decisionRecord":2`, 1)
	for name, tc := range map[string]struct {
		text  string
		want  []string
		count replay.Summary
	}{
		"nothing else":        {text, []string{"f:1 cm-0", "f:2 cm-1"}, replay.Summary{Decisions: 2}},
		"nothing":             {"", nil, replay.Summary{}},
		"among others":        {"I0101 starting\n\n" + first + "\n{\"level\":\"info\"}\n{broken\n" + second, []string{"f:3 cm-0", "f:6 cm-1"}, replay.Summary{Decisions: 2, Others: 4}},
		"with a prefix":       {"[pod/sallyport-1/manager] " + first + "\n2026-11-20T10:00:00Z " + second, []string{"f:1 cm-0", "f:2 cm-1"}, replay.Summary{Decisions: 2}},
		"CRLF":                {strings.ReplaceAll(text, "\n", "\r\n"), []string{"f:1 cm-0", "f:2 cm-1"}, replay.Summary{Decisions: 2}},
		"mentioned in a log":  {fmt.Sprintf("{\"msg\": %q}\n", "it wrote "+first), nil, replay.Summary{Others: 1}},
		"in a text of a log":  {fmt.Sprintf("{\"msg\": %q, \"level\": \"info\"}\n", first), []string{"f:1 cm-0"}, replay.Summary{Decisions: 1}},
		"in a field of a log": {fmt.Sprintf("{\"kubernetes\": {\"pod\": \"a\"}, \"event\": {\"json\": %s}}\n", first), []string{"f:1 cm-0"}, replay.Summary{Decisions: 1}},
		"wrapped twice":       {fmt.Sprintf("x {\"message\": %q}\n", fmt.Sprintf("{\"log\": %q}", first+"\n")), []string{"f:1 cm-0"}, replay.Summary{Decisions: 1}},
		"by Docker": {dockered(first+"\n", "stdout") + dockered("I0101 starting\n", "stderr") + dockered(second, "stdout"), []string{"f:1 cm-0", "f:3 cm-1"},
			replay.Summary{Decisions: 2, Others: 1}},
		"by Docker, in parts": {dockered(first[:100], "stdout") + dockered("I0101 start", "stderr") + dockered(first[100:]+"\n", "stdout") + dockered("ing\n", "stderr"),
			[]string{"f:3 cm-0"}, replay.Summary{Decisions: 1, Others: 1}},
		"by Docker, cut off":     {dockered(first[:len(first)-5], "stdout"), []string{"f:1 the record is cut off: the input ends in it"}, replay.Summary{Cut: 1}},
		"compressed":             {zipped(t, first+"\n", second), []string{"f:1 cm-0", "f:2 cm-1"}, replay.Summary{Decisions: 2}},
		"no newline at the end":  {strings.TrimSuffix(text, "\n"), []string{"f:1 cm-0", "f:2 cm-1"}, replay.Summary{Decisions: 2}},
		"cut off at the end":     {text[:len(text)-10], []string{"f:1 cm-0", "f:2 the record is cut off: the input ends in it"}, replay.Summary{Decisions: 1, Cut: 1}},
		"cut off before the end": {first[:len(first)-10] + "\n" + second, []string{"f:1 the record is cut off: the line ends in it", "f:2 cm-1"}, replay.Summary{Decisions: 1, Unreadable: 1}},
		"two in a line":          {first + first + "\n" + second, []string{"f:1 unexpected data after the record: " + fmt.Sprintf("%.40q", first), "f:2 cm-1"}, replay.Summary{Decisions: 1, Unreadable: 1}},
		"of a later version":     {later + "\n" + second, []string{"f:1 the record has version 2, but this program supports version 1; replay it with the release that wrote it", "f:2 cm-1"}, replay.Summary{Decisions: 1, Unreadable: 1}},
		"not a record inside":    {strings.Replace(first, `"time":"2026`, `"time":"once in 2026`, 1) + "\n", []string{`f:1 time: parsing time "once in 2026-11-20T10:00:00.000000005Z" as "2006-01-02T15:04:05.000000000Z": cannot parse "once in 2026-11-20T10:00:00.000000005Z" as "2006"`}, replay.Summary{Unreadable: 1}},
		"no such endpoint":       {strings.Replace(first, `"endpoint":"validate"`, `"endpoint":"guess"`, 1) + "\n", []string{`f:1 endpoint: "guess" is not validate, mutate or arbitrate`}, replay.Summary{Unreadable: 1}},
		"no request":             {"{\"decisionRecord\":1,\"time\":\"2026-11-20T10:00:00.000000005Z\",\"endpoint\":\"validate\"}\n", []string{"f:1 request: not an object"}, replay.Summary{Unreadable: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, s := all(t, r, input("f", tc.text))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			tc.count.Flips = tc.count.Decisions
			s.Changes, s.Unknown = nil, nil
			if diff := cmp.Diff(tc.count, *s); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

// What cannot be opened or read further is told, and the next input is replayed.
func TestInputsThatCannotBeRead(t *testing.T) {
	text, r := day(t, 1)
	zip := zipped(t, strings.Repeat(text, 50))
	got, s := all(t, r,
		replay.Input{Name: "gone", Open: func() (io.ReadCloser, error) { return nil, errors.New("no such file") }},
		input("half", zip[:len(zip)-4]), input("odd", "\x1f\x8bnot gzip"), input("good", text))
	if len(got) != 54 || got[0] != "gone:1 no such file" || got[51] != "half:51 unexpected EOF" || !strings.HasPrefix(got[52], "odd:1 ") || got[53] != "good:1 cm-0" {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
	if s.Decisions != 51 || s.Unreadable != 3 {
		t.Errorf("got %+v", s)
	}
}

// However many work on them, decisions are told in their order.
func TestResultsAreInOrder(t *testing.T) {
	const n = 500
	text, r := day(t, n)
	got, _ := all(t, r, input("f", text))
	if len(got) != n {
		t.Fatalf("%d of %d", len(got), n)
	}
	for i := range got {
		if want := fmt.Sprintf("f:%d cm-%d", i+1, i); got[i] != want {
			t.Fatalf("got %s at %d", got[i], i)
		}
	}
}

// endless is an input that never ends.
type endless struct{ line string }

func (e endless) Read(p []byte) (int, error) { return copy(p, e.line), nil }

func TestReplayEndsWhenItIsToldTo(t *testing.T) {
	text, r := day(t, 1)
	in := replay.Input{Name: "f", Open: func() (io.ReadCloser, error) { return io.NopCloser(endless{text}), nil }}
	full := errors.New("the disk is full")
	if _, err := r.Replay(t.Context(), []replay.Input{in}, func(*replay.Result) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := r.Replay(ctx, []replay.Input{in}, func(*replay.Result) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
