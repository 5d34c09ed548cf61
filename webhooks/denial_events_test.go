package webhooks

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Who looks at an object learns what was refused about it, by whom and why, unless nothing was really asked for.
func TestDenialsAreEvents(t *testing.T) {
	const tooRed = "Warning TooRed ConfigMap/cm(u-1) "
	const parent = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns", "uid": "u-parent"}}`
	scale := func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		spec      string
		change    []func(*admissionv1.AdmissionRequest)
		want      []string
	}{
		"an update":      {operation: "UPDATE", spec: red, want: []string{tooRed + "Update RegoPolicy: [colour/TooRed] x has red (UPDATE by bob)"}},
		"a deletion":     {operation: "DELETE", spec: red, want: []string{tooRed + "Delete RegoPolicy: [colour/TooRed] x has red (DELETE by bob)"}},
		"two reasons":    {operation: "UPDATE", spec: redAndBig, want: []string{tooRed + "Update RegoPolicy: [colour/TooRed] x has red (UPDATE by bob)", "Warning TooBig ConfigMap/cm(u-1) Update RegoPolicy: [size/TooBig] x has big (UPDATE by bob)"}},
		"of its parent":  {operation: "UPDATE", spec: red, change: list(scale), want: []string{"Warning TooRed ConfigMap/cm(u-parent) Update RegoPolicy: [colour/TooRed] x has red (UPDATE of scale by bob)"}},
		"a connection":   {operation: "CONNECT", spec: red, change: list(connection), want: []string{"Warning TooRed ConfigMap/cm(u-parent) Connect RegoPolicy: [colour/TooRed] x has red (CONNECT of scale by bob)"}},
		"a creation":     {operation: "CREATE", spec: red},
		"tried out only": {operation: "UPDATE", spec: red, change: list(dryRun)},
		"nothing wrong":  {operation: "UPDATE", spec: harmless},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, e := overridable(t, onScale, onConnect)
			r.parent = parent
			f.Validate(t.Context(), verified(reviewOf(t, tc.operation, tc.spec, append(list(by("bob")), tc.change...)...)))
			if diff := cmp.Diff(tc.want, e.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
	f, r, e := overridable(t, onScale)
	r.parent = "null"
	if f.Validate(t.Context(), verified(reviewOf(t, "UPDATE", red, by("bob"), scale))).Allowed || len(e.events) > 0 {
		t.Errorf("told of what is not there: %q", e.events)
	}
}

// An event has as much of what a policy says as the API takes, and always who was refused what.
func TestLongDenialsAreEvents(t *testing.T) {
	each := fmt.Sprintf(denyMetadata, "Listed") + "deny contains {\"reason\": \"Listed\", \"message\": $\"{x} is listed\"} if some x in input.request.object.spec.list\n"
	const maxNote = 1024 // of the API
	long := strings.Repeat("é", maxNote)
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprintf("n%03d", i))
	}
	for name, tc := range map[string]struct{ list, begin, end string }{
		"one that is long":           {fmt.Sprintf("%q", long), "é", "é (UPDATE by bob)"},
		"as many as there is room":   {strings.Join(names, ", "), "n000 is listed; n001 is listed; ", " more (UPDATE by bob)"},
		"one that is long, and more": {fmt.Sprintf(`"a", %q`, long), "a is listed; and 1 more (UPDATE by bob)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, e := newFixture(t, world{}, policyOf("list", each)), &told{}
			f.facts = &rights{}
			f.writeEvents(e, atOnce)
			f.Validate(t.Context(), verified(reviewOf(t, "UPDATE", `{"list": [`+tc.list+`]}`, by("bob"))))
			if len(e.events) != 1 {
				t.Fatalf("events %q", e.events)
			}
			note, found := strings.CutPrefix(e.events[0], "Warning Listed ConfigMap/cm(u-1) Update RegoPolicy: ")
			if !found || !strings.HasPrefix(note, "[list/Listed] "+tc.begin) || !strings.HasSuffix(note, tc.end) || len(note) > maxNote || !utf8.ValidString(note) {
				t.Errorf("got %d bytes: %s", len(note), e.events[0])
			}
		})
	}
}

// connection makes a request one that carries no object and has none before it.
func connection(r *admissionv1.AdmissionRequest) {
	r.SubResource, r.OldObject.Raw = "scale", nil
	r.Object.Raw = []byte(`{"apiVersion": "v1", "kind": "PodExecOptions", "spec": ` + red + `}`)
}

func onConnect(s *v1alpha1.RegoPolicySpec) {
	s.Match.Resources[0].Operations = append(s.Match.Resources[0].Operations, v1alpha1.MatchConnect)
}

// What Warn and Audit let pass is told on the object as a denial is, once it is stored, and says why it passed.
func TestWhatAModeLetsPassIsAnEvent(t *testing.T) {
	const tooRed, parent = "Warning TooRed ConfigMap/cm(u-1) ", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns", "uid": "u-1", "resourceVersion": "9"}}`
	scale := func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }
	generation := func(r *admissionv1.AdmissionRequest) {
		r.Object.Raw = []byte(strings.Replace(string(r.Object.Raw), `"uid"`, `"generation": 3, "uid"`, 1))
	}
	third := strings.Replace(storedAs("u-1", "9", ""), `"uid"`, `"generation": 3, "uid"`, 1)
	going := strings.Replace(storedAs("u-1", "9", ""), `"uid"`, `"deletionTimestamp": "2026-11-20T10:00:00Z", "uid"`, 1)
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		spec      string
		mode      v1alpha1.PolicyMode
		verified  bool
		change    []func(*admissionv1.AdmissionRequest)
		object    string
		want      []string
	}{
		"made, with a warning":       {operation: "CREATE", mode: "Warn", verified: true, object: storedAs("u-1", "1", ""), want: []string{tooRed + "Create RegoPolicy: [colour/TooRed] x has red (CREATE by bob, admitted because the policy's mode is Warn)"}},
		"made, and only recorded":    {operation: "CREATE", mode: "Audit", verified: true, object: storedAs("u-1", "1", ""), want: []string{tooRed + "Create RegoPolicy: [colour/TooRed] x has red (CREATE by bob, admitted because the policy's mode is Audit)"}},
		"made, by whom nobody knows": {operation: "CREATE", mode: "Warn", object: storedAs("u-1", "1", ""), want: []string{tooRed + "Create RegoPolicy: [colour/TooRed] x has red (CREATE, admitted because the policy's mode is Warn)"}},
		"not made in the end":        {operation: "CREATE", mode: "Warn", verified: true, object: "null"},
		"made by another request":    {operation: "CREATE", mode: "Warn", verified: true, object: storedAs("u-2", "1", "")},
		"of a kind that is not read": {operation: "CREATE", mode: "Warn", verified: true, want: []string{tooRed + "Create RegoPolicy: [colour/TooRed] x has red (CREATE by bob, admitted because the policy's mode is Warn)"}},
		"not read, and made up":      {operation: "CREATE", mode: "Warn"},
		"changed":                    {operation: "UPDATE", mode: "Warn", verified: true, change: list(generation), object: third, want: []string{tooRed + "Update RegoPolicy: [colour/TooRed] x has red (UPDATE by bob, admitted because the policy's mode is Warn)"}},
		"not changed in the end":     {operation: "UPDATE", mode: "Warn", verified: true, change: list(generation), object: storedAs("u-1", "7", "")},
		"deleted":                    {operation: "DELETE", mode: "Warn", verified: true, object: "null", want: []string{tooRed + "Delete RegoPolicy: [colour/TooRed] x has red (DELETE by bob, admitted because the policy's mode is Warn)"}},
		"going":                      {operation: "DELETE", mode: "Warn", object: going, want: []string{tooRed + "Delete RegoPolicy: [colour/TooRed] x has red (DELETE, admitted because the policy's mode is Warn)"}},
		"gone, and made up":          {operation: "DELETE", mode: "Warn", object: "null"},
		"scaled":                     {operation: "UPDATE", mode: "Warn", change: list(scale), want: []string{tooRed + "Update RegoPolicy: [colour/TooRed] x has red (UPDATE of scale, admitted because the policy's mode is Warn)"}},
		"connected":                  {operation: "CONNECT", mode: "Warn", verified: true, change: list(connection), want: []string{tooRed + "Connect RegoPolicy: [colour/TooRed] x has red (CONNECT of scale by bob, admitted because the policy's mode is Warn)"}},
		"connected, and made up":     {operation: "CONNECT", mode: "Warn", change: list(connection)},
		"two reasons":                {operation: "UPDATE", spec: redAndBig, mode: "Warn", object: storedAs("u-1", "8", ""), want: []string{tooRed + "Update RegoPolicy: [colour/TooRed] x has red (UPDATE, admitted because the policy's mode is Warn)", "Warning TooBig ConfigMap/cm(u-1) Update RegoPolicy: [size/TooBig] x has big (UPDATE, admitted because the policy's mode is Warn)"}},
		"nothing wrong":              {operation: "CREATE", spec: harmless, mode: "Warn", verified: true, object: storedAs("u-1", "1", "")},
		"tried out only":             {operation: "CREATE", mode: "Warn", verified: true, change: list(dryRun), object: storedAs("u-1", "1", "")},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, e := overridable(t, onScale, onConnect, mode(tc.mode))
			r.object, r.parent = tc.object, parent
			review := reviewOf(t, tc.operation, stdcmp.Or(tc.spec, red), append(list(by("bob")), tc.change...)...)
			review.Verified = tc.verified
			if got := f.Validate(t.Context(), review); !got.Allowed {
				t.Errorf("refused: %+v", got.Result)
			}
			f.events.Wait()
			if diff := cmp.Diff(tc.want, e.events); diff != "" {
				t.Errorf("looked %d times, events (-want +got):\n%s", r.looked, diff)
			}
		})
	}
}

// references keeps what events are about.
type references struct{ told []string }

func (e *references) Eventf(regarding, related runtime.Object, _, reason, action, note string, args ...any) {
	about, to := *regarding.(*corev1.ObjectReference), *related.(*corev1.ObjectReference)
	e.told = append(e.told, fmt.Sprintf("%+v %+v %s %s", about, to, reason, action))
}

// Event recorders count what has the same object, reason and action as one event, and take an object in another version for another
// one: so who tries again when the object has changed left one event for each try. Several texts for one reason are one event.
func TestARetriedRequestIsOneEvent(t *testing.T) {
	f, _, _ := overridable(t)
	twice := denies("red", "TooRed", 403) + denies("big", "TooRed", 403)
	f.Swap(newFixture(t, world{}, policyOf("colour", twice)).set)
	e := &references{}
	f.writeEvents(e, atOnce)
	version := func(v string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) {
			r.UID = types.UID("r-" + v)
			r.OldObject.Raw = []byte(strings.Replace(string(r.OldObject.Raw), `"uid"`, fmt.Sprintf(`"resourceVersion": %q, "uid"`, v), 1))
		}
	}
	for _, v := range []string{"7", "8"} {
		f.Validate(t.Context(), verified(reviewOf(t, "UPDATE", redAndBig, by("bob"), version(v))))
	}
	if len(e.told) != 2 || e.told[0] != e.told[1] {
		t.Errorf("two tries are not one event twice: %q", e.told)
	}
}

// sink is an API server that keeps events.
type sink struct {
	created, patched chan *eventsv1.Event
}

func (s sink) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.created <- e
	return e, nil
}

func (s sink) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) { return e, nil }

func (s sink) Patch(_ context.Context, old *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s.patched <- old
	return old, nil
}

// What the same user is refused again is a series, with a note of one line that does not say what to do.
func TestTheSameRefusalIsASeries(t *testing.T) {
	const rule = "deny contains {\"reason\": \"TooRed\", \"message\": \"ConfigMap cm: red is not allowed\", \"cause\": \"of x\", \"remedy\": \"allowed: kubectl delete\"} if input.request.object.spec.red\n"
	f, _, _ := overridable(t)
	f.Swap(newFixture(t, world{}, policyOf("colour", fmt.Sprintf(denyMetadata, "TooRed")+rule)).set)
	s := sink{make(chan *eventsv1.Event, 9), make(chan *eventsv1.Event, 9)}
	broadcaster := clientevents.NewBroadcaster(s)
	t.Cleanup(broadcaster.Shutdown)
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.writeEvents(broadcaster.NewRecorder(runtime.NewScheme(), "sallyport"), atOnce)
	refuse := func() {
		got := f.Validate(t.Context(), verified(reviewOf(t, "UPDATE", red, by("bob"))))
		if got.Allowed || !strings.Contains(got.Result.Message, "; allowed: ") {
			t.Errorf("got %+v", got.Result)
		}
	}
	refuse()
	const want = "[colour/TooRed] ConfigMap cm: red is not allowed because of x (UPDATE by bob)"
	if first := <-s.created; first.Note != want || first.Series != nil {
		t.Errorf("got the note %q, series %v", first.Note, first.Series)
	}
	refuse()
	if second := <-s.patched; second.Note != want || second.Series == nil || second.Series.Count != 2 {
		t.Errorf("got the note %q, series %v", second.Note, second.Series)
	}
}

// An event has what is denied and why, all of it, and not what to do.
func TestAnEventSaysWhyInOneLine(t *testing.T) {
	for name, tc := range map[string]struct{ denial, want string }{
		"a cause and a remedy":         {`{"reason": "TooRed", "message": "a: no", "cause": "b; c", "remedy": "d"}`, "a: no because b; c"},
		"a remedy":                     {`{"reason": "TooRed", "message": "a: no (b; c)", "remedy": "d; e"}`, "a: no (b; c)"},
		"all in the message":           {`{"reason": "TooRed", "message": "a: no because b; allowed: c"}`, "a: no because b; allowed: c"},
		"a list in lines of their own": {`{"reason": "TooRed", "message": "does not compile:\n  a.rego:1:2: x\n  b.rego:3:4: y"}`, "does not compile:   a.rego:1:2: x   b.rego:3:4: y"},
		"a control character":          {`{"reason": "TooRed", "message": "a\tb"}`, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, e := overridable(t)
			f.Swap(newFixture(t, world{}, policyOf("colour", fmt.Sprintf(denyMetadata, "TooRed")+"deny contains "+tc.denial+" if input.request.object.spec.red\n")).set)
			f.Validate(t.Context(), verified(reviewOf(t, "UPDATE", red, by("bob"))))
			want := []string{"Warning TooRed ConfigMap/cm(u-1) Update RegoPolicy: [colour/TooRed] " + tc.want + " (UPDATE by bob)"}
			if diff := cmp.Diff(want, e.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
