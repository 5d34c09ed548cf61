package tools

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/offline"
	"sallyport.dev/sallyport/webhooks/record"
)

// stopping is a world in which machine web-1 is being stopped.
type stopping struct{}

func (s stopping) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return s }

func (stopping) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	metadata := map[string]any{"name": "web-1", "namespace": "default", "uid": "uid-vm"}
	var answer any = map[string]any{"metadata": metadata, "spec": map[string]any{"runPolicy": "Manual"}, "status": map[string]any{"phase": "Stopping"}}
	if q.Name == "" {
		answer = []any{map[string]any{
			"metadata": map[string]any{"name": "stop-1", "namespace": "default", "uid": "uid-stop"},
			"spec":     map[string]any{"virtualMachineName": "web-1", "type": "Stop"}, "status": map[string]any{"phase": "InProgress"},
		}}
	}
	v, err := engine.ValueOf(answer)
	return engine.Answer{Value: v, Live: true, ResourceVersion: "7"}, err
}

// recordedDay is the records of three requests about web-1, as the shipped policies decide.
func recordedDay(t *testing.T) string {
	t.Helper()
	shipped, err := bundled.Release.Read(&offline.Files{})
	if err != nil {
		t.Fatal(err)
	}
	shipped.Deliberation = deliberation
	set, err := shipped.Set(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var day bytes.Buffer
	recorder := record.NewRecorder(prometheus.NewRegistry(), &day, false)
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	gate := decision.NewDecider(set, stopping{}, recorder, func() time.Time { return at })
	for _, r := range []struct{ user, name, spec string }{
		{"alice", "start-1", `"type": "Start"`}, {"bob", "stop-2", `"type": "Stop", "force": true`}, {"alice", "restart-1", `"type": "Restart", "force": true`},
	} {
		at = at.Add(7 * time.Minute)
		review, err := decision.Decode(fmt.Appendf(nil, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
			"uid": "r", "operation": "CREATE", "namespace": "default", "name": %[2]q, "userInfo": {"username": %[1]q},
			"kind": {"group": "sallyport.dev", "version": "v1alpha1", "kind": "VirtualMachineOperation"},
			"resource": {"group": "sallyport.dev", "version": "v1alpha1", "resource": "virtualmachineoperations"},
			"object": {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachineOperation",
				"metadata": {"name": %[2]q, "namespace": "default"}, "spec": {"virtualMachineName": "web-1", %[3]s}}}}`, r.user, r.name, r.spec))
		if err != nil {
			t.Fatal(err)
		}
		gate.Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review})
	}
	recorder.Close(time.Minute)
	return day.String()
}

// editedCopy is the folder of the shipped policies, with another table.
func editedCopy(t *testing.T, old, replacement string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../../policies")); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, "operations/supersede/policy.yaml"), old, replacement)
	return dir
}

func TestReplayCommand(t *testing.T) {
	day := recordedDay(t)
	dir := editedCopy(t, "Stop: [Stop force, Restart force]", "Stop: [Stop force, Start]")
	yields := editedCopy(t, "Stop force: []", "Stop force: [Start]")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(day)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	folder(t, map[string]string{
		"day.log": day, "day.log.gz": zipped.String(), "noise.log": "starting\n", "cut.log": day[:len(day)-9],
		"later.log": strings.Replace(day, `{"decisionRecord":1`, `{"decisionRecord":9`, 1), "sub/x": "",
		"forged.log": strings.ReplaceAll(day, `"username":"alice"`, `"username":"alice\u001b[2J\r\nbob\u202e"`),
	})
	for name, tc := range map[string]struct {
		args      []string
		code      int
		out, errs string
	}{
		"the same policies":           {[]string{"day.log"}, 0, "3 decisions replayed: 0 would change, 0 of them with a different verdict; 0 undecided\n", ""},
		"another row":                 {[]string{"day.log", "--policies", yields}, 0, "3 decisions replayed: 0 would change", ""},
		"an edit that flips":          {[]string{"day.log", "--policies", dir}, 1, "3 decisions replayed: 2 would change, 2 of them with a different verdict", "2 of 3 decisions would change\n"},
		"compressed":                  {[]string{"day.log.gz", "--policies", dir}, 1, "denied -> would be ADMITTED", "2 of 3 decisions would change\n"},
		"a name that commands":        {[]string{"forged.log", "--policies", dir}, 1, `  alice\u001b[2J\u000d\u000abob\u202e  CREATE`, "2 of 3"},
		"verdicts only":               {[]string{"day.log", "--policies", dir, "--only", "verdict"}, 1, "admitted -> would be DENIED", "2 of 3"},
		"one policy":                  {[]string{"day.log", "--policies", dir, "--policy", "operations-applicability"}, 0, "3 decisions replayed: 0 would change", ""},
		"one policy that flips":       {[]string{"day.log", "--policies", dir, "--policy", "operations-supersede"}, 1, "3 decisions replayed: 2 would change", "2 of 3"},
		"no such policy":              {[]string{"day.log", "--policy", "supersede"}, 2, "", "--policy supersede: the policy does not exist"},
		"since the second":            {[]string{"day.log", "--policies", dir, "--since", "2026-11-20T09:14:00Z"}, 1, "2 decisions replayed: 1 would change", "1 of 2"},
		"since a moment ago":          {[]string{"day.log", "--since", "1ms"}, 2, "0 decisions replayed", "no decision record in day.log matches --policy and --since (3 lines read)"},
		"since no time":               {[]string{"day.log", "--since", "noon"}, 2, "", `invalid --since "noon": must be a duration`},
		"held against the same":       {[]string{"day.log", "--policies", dir, "--baseline", dir}, 0, "3 decisions replayed: 0 would change", ""},
		"held against an edit":        {[]string{"day.log", "--baseline", dir}, 1, "3 decisions replayed: 2 would change, 2 of them with a different verdict", "2 of 3"},
		"held against nothing":        {[]string{"day.log", "--baseline", "gone"}, 2, "", "reading --baseline: "},
		"no records":                  {[]string{"noise.log"}, 2, "0 decisions replayed", "Error: no decision record in noise.log (1 line read)\n"},
		"cut off":                     {[]string{"cut.log"}, 2, "2 decisions replayed", "Warning: cut.log:3: the record is cut off: the input ends in it\nError: 1 of 3 decisions undecided\n"},
		"cut off, ignored":            {[]string{"cut.log", "--ignore-undecided"}, 0, "1 record unreadable", "Warning: cut.log:3"},
		"of another version":          {[]string{"later.log", "--ignore-undecided"}, 2, "2 decisions replayed", "Warning: later.log:1: the record has version 9"},
		"a file that is not there":    {[]string{"gone.log"}, 2, "", "Error: stat gone.log"},
		"a folder":                    {[]string{"sub"}, 2, "", "sub is a folder: specify the files in it"},
		"a file twice":                {[]string{"day.log", "day.log"}, 2, "", "day.log is specified twice"},
		"no file":                     {nil, 2, "", "requires at least 1 arg"},
		"only something else":         {[]string{"day.log", "--only", "reasons"}, 2, "", `invalid argument "reasons" for "--only" flag: must be verdict`},
		"another format":              {[]string{"day.log", "-o", "yaml"}, 2, "", `invalid argument "yaml" for "-o, --output" flag: must be text or json`},
		"standard input, twice":       {[]string{"-", "--policies", "-"}, 2, "", "standard input cannot be used for both records and policies"},
		"policies that are not there": {[]string{"day.log", "--policies", "gone"}, 2, "", "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := execute(t, append([]string{"replay"}, tc.args...)...)
			if code != tc.code || !strings.Contains(out, tc.out) || !strings.Contains(errs, tc.errs) {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
		})
	}
}

func TestReplayOfStandardInput(t *testing.T) {
	command := newCommand()
	var out bytes.Buffer
	command.SetIn(strings.NewReader(recordedDay(t)))
	command.SetOut(&out)
	command.SetArgs([]string{"replay", "-"})
	if code := Run(t.Context(), command); code != 0 || !strings.HasPrefix(out.String(), "3 decisions") {
		t.Errorf("exit %d: %s", code, out.String())
	}
}

// Each line of the JSON says what it is about, the last one being the summary.
func TestReplayAsJSON(t *testing.T) {
	dir := editedCopy(t, "Stop: [Stop force, Restart force]", "Stop: [Stop force, Start]")
	folder(t, map[string]string{"day.log": recordedDay(t) + `{"decisionRecord":1`})
	out, _, code := execute(t, "replay", "day.log", "--policies", dir, "-o", "json")
	var words []string
	for line := range strings.Lines(out) {
		var said struct {
			Result, Name, Was, Would, Problem string
			Decisions, Flips                  int
			Changes                           []map[string]any
		}
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		words = append(words, strings.TrimSpace(fmt.Sprintln(said.Result, said.Name, said.Was, said.Would, len(said.Changes), said.Decisions, said.Flips)))
	}
	want := "flip start-1 denied admitted 1 0 0\nflip restart-1 admitted denied 1 0 0\nunreadable    0 0 0\nsummary    2 3 2"
	if got := strings.Join(words, "\n"); got != want || code != 1 {
		t.Errorf("exit %d, got\n%s\nwant\n%s", code, got, want)
	}
}

// What cannot be decided is told with -v by the decision, and otherwise once.
func TestReplayOfWhatCannotBeDecided(t *testing.T) {
	dir := editedCopy(t, "Stop: [Stop force, Restart force]", "Stop: [Stop force, Restart force]")
	edit(t, filepath.Join(dir, "operations/supersede/supersede.rego"), `	"except": {"status.phase": ["Completed", "Failed"]},`+"\n", "")
	folder(t, map[string]string{"day.log": recordedDay(t)})
	const why = "facts.unfinished: the record has no answer to: every VirtualMachineOperation in namespace default with spec.virtualMachineName=web-1"
	out, errs, code := execute(t, "replay", "day.log", "--policies", dir)
	if code != 2 || strings.Count(out, why) != 1 || !strings.Contains(errs, "3 of 3 decisions undecided") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	out, _, code = execute(t, "replay", "day.log", "--policies", dir, "-v", "--ignore-undecided")
	if code != 0 || strings.Count(out, "operations-supersede: undecided: "+why) != 3 {
		t.Errorf("with -v: exit %d\n%s", code, out)
	}
}

// The replay that docs/review.md shows is what its reader sees.
func TestDocsShowAReplay(t *testing.T) {
	text := page(t, "review.md")
	_, diff, found := strings.Cut(text, "```diff\n")
	var old, replacement string
	for line := range strings.Lines(diff) {
		switch {
		case strings.HasPrefix(line, "-      "):
			old = strings.TrimSpace(line[1:])
		case strings.HasPrefix(line, "+      "):
			replacement = strings.TrimSpace(line[1:])
		}
	}
	if !found || old == "" || replacement == "" {
		t.Fatal("docs/review.md shows no edit")
	}
	dir := editedCopy(t, old, replacement)
	folder(t, map[string]string{"day.log": recordedDay(t)})
	if err := os.CopyFS("policies", os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, block := range strings.Split(text, "```console\n")[1:] {
		content, _, _ := strings.Cut(block, "```")
		command, want, _ := strings.Cut(content, "\n")
		args, ours := strings.CutPrefix(command, "$ sallyport replay ")
		if !ours || want == "" {
			continue
		}
		shown++
		out, errs, _ := execute(t, append([]string{"replay"}, strings.Fields(args)...)...)
		if out+errs != want {
			t.Errorf("%s shows\n%s\nand not\n%s", command, out+errs, want)
		}
	}
	if shown == 0 {
		t.Error("docs/review.md shows nothing")
	}
}
