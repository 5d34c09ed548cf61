package replay_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport/test/support/race"
	"sallyport.dev/sallyport/webhooks/replay"
)

// What is too long, or too dense, costs itself only, and is told with the way out.
func TestLinesAreBounded(t *testing.T) {
	text, r := day(t, 1)
	one := strings.TrimSuffix(text, "\n")
	const most = 128 << 10
	padded := strings.Replace(one, `{"decisionRecord":1`, `{"decisionRecord":1,"pad":"`+strings.Repeat("a", most)+`"`, 1)
	dense := strings.Replace(one, `{"decisionRecord":1`, `{"decisionRecord":1,"pad":[`+strings.Repeat("{},[],", 20_000)+`0]`, 1)
	const tooLong = "the line is too long: more than 131072 bytes; to read longer lines, use --max-line-bytes"
	unfinished := func(stream int) string {
		return strings.TrimSuffix(dockered(strings.Repeat("a", most/8), fmt.Sprint(stream)), "\n")
	}
	var streams []string
	for i := range 12 {
		streams = append(streams, unfinished(i))
	}
	var small []string
	for i := range 40 {
		small = append(small, strings.TrimSuffix(dockered("a", fmt.Sprint(i)), "\n"))
	}
	for name, tc := range map[string]struct {
		line string
		told string
	}{
		"a long line":                      {padded, "f:1 " + tooLong},
		"a dense one":                      {dense, "f:1 the record has more than 64000 values; to read it, increase --max-line-bytes"},
		"unfinished lines of streams":      {strings.Join(streams, "\n"), "f:9 " + tooLong},
		"unfinished lines of many streams": {strings.Join(small, "\n"), "f:17 " + tooLong},
	} {
		in := input("f", tc.line+"\n"+text)
		in.Longest = most
		got, s := all(t, r, in)
		if !strings.HasPrefix(strings.Join(got, "\n"), tc.told) || s.Decisions != 1 {
			t.Errorf("%s: got %d decisions, and\n%.1000s\nwant\n%s", name, s.Decisions, strings.Join(got, "\n"), tc.told)
		}
		in.Longest = 64 * most
		if got, s := all(t, r, in); name != "unfinished lines of many streams" && strings.Contains(strings.Join(got, "\n"), "--max-line-bytes") || s.Decisions == 0 {
			t.Errorf("%s: with another limit, got %d decisions, and\n%.1000s", name, s.Decisions, strings.Join(got, "\n"))
		}
	}
}

// Records of a small file name no more reasons than are counted each by itself.
func TestSummaryIsBounded(t *testing.T) {
	race.Skip(t)
	text, r := day(t, 1)
	var lines strings.Builder
	for i := range 10_100 {
		lines.WriteString(strings.ReplaceAll(text, `"Red"`, fmt.Sprintf(`"Red%d"`, i)))
	}
	_, s := all(t, r, input("f", lines.String()))
	if s.Decisions != 10_100 || len(s.Changes) < 10_000 || len(s.Changes) > 10_010 {
		t.Errorf("%d decisions differ in %d ways", s.Decisions, len(s.Changes))
	}
	sum, others := 0, 0
	for _, change := range s.Changes {
		sum += change.Count
		if change.Policy == "(others)" {
			others += change.Count
		}
	}
	if sum != 2*10_100 || others < 100 {
		t.Errorf("%d changes are counted, %d of them as others", sum, others)
	}
}

// repeated is a text that is repeated a number of times, as a compressed file can.
type repeated struct {
	text  string
	times int
	at    int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	if r.times == 0 {
		return 0, io.EOF
	}
	n = copy(p, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at, r.times = 0, r.times-1
	}
	return n, nil
}

// A small file that is large when it is decompressed, with lines as long and as dense as may be, takes a bounded amount of memory.
func TestCompressedFilesAreBounded(t *testing.T) {
	race.Skip(t)
	text, r := day(t, 1)
	one := strings.TrimSuffix(text, "\n")
	long := strings.Replace(one, `{"decisionRecord":1`, `{"decisionRecord":1,"pad":"`+strings.Repeat("a", replay.DefaultLongest*3/4)+`"`, 1) + "\n"
	dense := strings.Replace(one, `"request":{`, `"request":{"pad":[`+strings.Repeat("[],", replay.DefaultLongest/150)+`0],`, 1) + "\n"
	endless := strings.Repeat("a", 1<<20)
	open := func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() {
			zip := gzip.NewWriter(writer)
			var err error
			for _, part := range []*repeated{{text: long, times: 12}, {text: dense, times: 12}, {text: endless, times: 300}} {
				if err == nil {
					_, err = io.Copy(zip, part)
				}
			}
			if err == nil {
				err = zip.Close()
			}
			writer.CloseWithError(err)
		}()
		return reader, nil
	}
	var most atomic.Uint64
	base := heap()
	_, err := r.Replay(t.Context(), []replay.Input{{Name: "f", Open: open}}, func(*replay.Result) error {
		most.Store(max(most.Load(), heap()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// What is in use while a result is told: lines that wait, and what is made of those that are worked on.
	if used := int64(most.Load()) - int64(base); used > 256<<20 {
		t.Errorf("%d MiB are in use", used>>20)
	}
	t.Logf("%d MiB were in use at most", (int64(most.Load())-int64(base))>>20)
}

// heap is how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
