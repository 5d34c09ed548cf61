package server

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/record"
)

// plain reads a review by a decoder for each purpose, and takes nothing over from the text.
func plain(body []byte) (*decision.Review, error) {
	var review admissionv1.AdmissionReview
	var members struct {
		Request jsontext.Value `json:"request"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	if err := usual(body); err != nil {
		return nil, err
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || review.Request == nil || review.Request.UID == "" {
		return nil, fmt.Errorf("not a review: %+v", review)
	}
	document, err := engine.ParseValue(members.Request)
	return &decision.Review{Request: review.Request, Document: document}, err
}

// usual tells whether an API server could have sent this, as far as numbers and nesting go.
func usual(body []byte) error {
	decoder := stdjson.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	for depth := 0; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil { // as of a text that is no UTF-8, which is somebody else's to say
			return nil
		}
		switch token := token.(type) {
		case stdjson.Delim:
			if depth += map[stdjson.Delim]int{'{': 1, '[': 1, '}': -1, ']': -1}[token]; depth > 200 {
				return errors.New("too deep")
			}
		case stdjson.Number:
			f, err := token.Float64()
			mantissa, _, _ := strings.Cut(strings.ToLower(token.String()), "e")
			if err != nil || len(token) > 32 || f == 0 && strings.Trim(mantissa, "-0.") != "" {
				return fmt.Errorf("%.40s is no number", token)
			}
		}
	}
}

// nosy are policies that look at requests in many ways, and whose match covers everything.
func nosy(f *testing.F) *decision.Decider {
	f.Helper()
	all := func(s *v1alpha1.RegoPolicySpec) {
		s.TimeoutMilliseconds = 60_000
		s.Match.Resources = []v1alpha1.PolicyResources{{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
			Operations: []v1alpha1.MatchOperation{"CREATE", "UPDATE", "DELETE", "CONNECT"}}}
	}
	rule := func(reason, message, condition string) string {
		return fmt.Sprintf(toys.DenyMetadata+"deny contains {\"reason\": %[1]q, \"message\": $\"%[2]s\"} if %[3]s\n\n", reason, message, condition)
	}
	set, err := catalog.Compile([]v1alpha1.RegoPolicy{
		toys.PolicyOf("fields", rule("Red", "{input.request.object.spec.name} is red", "input.request.object.spec.red")+
			rule("Was", "{input.request.oldObject.metadata.name} was red", "input.request.oldObject.spec.red == true")+
			rule("Who", "{input.request.userInfo.username} has {input.request.operation}", `"g" in input.request.userInfo.groups`), all),
		toys.PolicyOf("whole", rule("Many", "{count(input.request.object)} members", "count(input.request.object) > 3")+
			rule("Changed", "{input.request.oldObject} became {input.request.object}", "input.request.object != input.request.oldObject")+
			rule("Hidden", "it is there", `walk(input.request, [_, "hidden"])`), all),
		toys.PolicyOf("lists", rule("Listed", "{x} of {y}", "some x, y in input.request.object.spec.list")+
			rule("Labelled", "{k} is {v}", "some k, v in input.request.object.metadata.labels")+"patch contains {\"op\": \"add\", \"path\": \"/spec/seen\", \"value\": true} if input.request.object.spec.red\n\n", all),
		toys.PolicyOf("asking", "facts.other := {\"apiVersion\": \"v1\", \"kind\": \"Service\", \"namespace\": input.request.namespace, \"name\": input.request.object.metadata.name}\n\n"+
			rule("Asked", "{input.request.name} has {input.facts.other}", "input.facts.other == null"), all, toys.OnErrorAllow),
	})
	if err != nil {
		f.Fatal(err)
	}
	now := func() time.Time { return time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC) }
	return decision.NewDecider(set, toys.World{}, record.NewRecorder(prometheus.NewRegistry(), io.Discard, false), now)
}

func answerOf(t *testing.T, gate *decision.Decider, endpoint string, review *decision.Review) *admissionv1.AdmissionResponse {
	t.Helper()
	return gate.Answer(t.Context(), &decision.Question{Endpoint: endpoint, Review: review})
}

// verdictOf is what a response says, without what it says about itself.
func verdictOf(r *admissionv1.AdmissionResponse) string {
	message, code := "", int32(0)
	if r.Result != nil {
		message, code = r.Result.Message, r.Result.Code
	}
	return fmt.Sprintf("%t %d %s %q %s", r.Allowed, code, message, r.Warnings, r.Patch)
}

// A text that is taken for a review is what the decoder of Kubernetes takes it for, to the last field, for Go and for policies; what policies
// say of it is what they would say of the decoded document; and nothing that comes after changes it. Every other text is an error.
func FuzzReview(f *testing.F) {
	object := func(object string) string {
		return strings.Replace(toys.GoodReview, `{"spec": {"name": "x", "red": true}}`, object, 1)
	}
	for _, body := range []string{
		toys.GoodReview, toys.FullReview, "", "{}", "[]", toys.GoodReview + toys.GoodReview, toys.GoodReview + " \n", strings.Replace(toys.GoodReview, `"request"`, `"Request"`, 1),
		object(`{"spec": {"red": true, "red": false}}`), object(`{"spec": {"red": true, "r\u0065d": false}}`), object(`{"spec": {"Red": true}}`),
		object(`{"spec": {"list": [1, 1.0, 1e0, 10e-1, null, "\ud83d\ude00", "\u0000"]}, "metadata": {"name": "n", "labels": {"": "", "a": "b"}}}`),
		object(`null`), object(`7`), object(`[]`), object(`{"a": {"b": {"c": {"d": {"e": {"f": ["hidden"]}}}}}}`), object(`{"a": 1, "b": 2, "c": 3, "d": 4}`),
		object(strings.Repeat(`{"a":`, 300) + `"hidden"` + strings.Repeat("}", 300)), object(`"` + "\xff" + `"`), object(`"\ud800"`), object(`01`), object(`1e99999`),
		object(`1e-99999`), object(`-1.5E308`), object(`0e999`), object(strings.Repeat("9", 33)), object(`{"spec": {"red": 0.` + strings.Repeat("0", 40) + `1}}`),
		object(strings.Repeat("[", 150) + strings.Repeat("]", 150)), object("[" + strings.Repeat("{},", 400) + "{}]"), object(`"` + strings.Repeat("9", 400) + `"`),
		strings.Replace(toys.GoodReview, `"uid": "r-1"`, `"uid": 7`, 1), strings.Replace(toys.GoodReview, `"CREATE"`, `"DELETE", "oldObject": {"spec": {"red": true}}`, 1),
		strings.Replace(toys.GoodReview, `"CREATE"`, `"UPDATE", "dryRun": true, "subResource": "scale", "options": {"fieldManager": "x"}`, 1),
		strings.Replace(toys.GoodReview, `{"username": "ann"}`, `{"username": "ann", "groups": ["g"], "extra": {"a": ["b"]}, "more": 1}`, 1),
		strings.Replace(toys.GoodReview, `{"username": "ann"}`, `{"username": null, "groups": null}`, 1), strings.Replace(toys.GoodReview, `"operation": "CREATE"`, `"operation": "create"`, 1),
		strings.Replace(toys.GoodReview, `"request": {`, `"response": {"uid": "x", "allowed": true}, "request": {`, 1),
	} {
		f.Add([]byte(body))
	}
	gate := nosy(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		body = bytes.Clone(body) // it must not change any more, and records are written later
		want, wantErr := plain(body)
		got, err := decision.Decode(body)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got %v, and a decoder says %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if _, err := decision.Decode([]byte(toys.FullReview)); err != nil { // as the next request
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Request, got.Request); diff != "" {
			t.Errorf("request (-plain +got):\n%s", diff)
		}
		if !got.Document.Equal(want.Document) {
			t.Errorf("the document is %v, want %v", got.Document, want.Document)
		}
		if is, would := verdictOf(answerOf(t, gate, decision.Validating, got)), verdictOf(answerOf(t, gate, decision.Validating, want)); is != would {
			t.Errorf("the answer is\n%s\nand to the decoded document\n%s", is, would)
		}
		if is, would := verdictOf(answerOf(t, gate, decision.Mutating, got)), verdictOf(answerOf(t, gate, decision.Mutating, want)); is != would {
			t.Errorf("changed is\n%s\nand of the decoded document\n%s", is, would)
		}
	})
}

// Whatever comes to whatever path, the answer is HTTP 400, or one to the request that came; never a panic, and never that it is admitted where
// the gate refuses it.
func FuzzHandler(f *testing.F) {
	for _, path := range []string{ValidatePath, MutatePath, ValidatePolicyPath + "fields", MutatePolicyPath + "lists", ValidatePolicyPath, ValidatePolicyPath + "../x"} {
		for _, body := range []string{toys.GoodReview, toys.FullReview, "", `{"request": {}}`, strings.Replace(toys.GoodReview, "ns", "\\u0000", 1),
			strings.Replace(toys.GoodReview, "true", "1e1000000", 1), strings.Replace(toys.GoodReview, "true", strings.Repeat("9", 4000), 1),
			strings.Replace(toys.GoodReview, "true", strings.Repeat("[", 400)+strings.Repeat("]", 400), 1), strings.Replace(toys.GoodReview, "true", "["+strings.Repeat("{},", 400)+"{}]", 1)} {
			f.Add(path, []byte(body))
		}
		for _, member := range []string{`"annotations": {"a": %q}`, `"labels": {"a": %q}`, `"finalizers": [%q]`, `"managedFields": [{"manager": %q}]`} {
			for _, kind := range []string{"VirtualMachine", "VirtualMachinePool", "RegoPolicy"} {
				f.Add(path, []byte(fmt.Sprintf(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r-1", "operation": "CREATE",
					"kind": {"group": "sallyport.dev", "version": "v1alpha1", "kind": %q}, "userInfo": {"username": "ann"}, "name": "x", "namespace": "ns",
					"object": {"metadata": {"name": "x", %s}, "spec": {}}}}`, kind, fmt.Sprintf(member, strings.Repeat("x", 66<<10)))))
			}
		}
	}
	gate := nosy(f)
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		if !strings.HasPrefix(path, "/") || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '%' || r == '?' || r == '#' }) {
			t.Skip()
		}
		mux, w := http.NewServeMux(), httptest.NewRecorder()
		Register(gate, prometheus.NewRegistry(), mux.Handle, logr.Discard())
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body)))
		review, err := plain(body)
		switch {
		case w.Code >= 500:
			t.Errorf("HTTP %d: %s", w.Code, w.Body)
		case w.Code != 200 && err == nil && (path == ValidatePath || path == MutatePath):
			t.Errorf("HTTP %d to a review: %s", w.Code, w.Body)
		case w.Code == 200 && err != nil:
			t.Errorf("an answer to no review: %s", w.Body)
		}
		if w.Code != 200 || err != nil {
			return
		}
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		if answer.Response.UID != review.Request.UID {
			t.Errorf("the answer is to %q", answer.Response.UID)
		}
		if fits := oversized(review) == nil; path == ValidatePath &&
			answer.Response.Allowed != (fits && answerOf(t, gate, decision.Validating, review).Allowed) {
			t.Errorf("admitted is %t, not what the gate says", answer.Response.Allowed)
		}
	})
}

// An override that is understood says just what is written, in one line.
func FuzzOverride(f *testing.F) {
	const override = "colour; uid=; by=alice; until=2026-11-20T10:30:00Z; drill 7; see the wiki"
	for _, text := range []string{
		override, override + "; by=kubernetes-admin", strings.Replace(override, "by=alice", "by=alice; by=kubernetes-admin", 1), strings.Replace(override, "by=", "by=$(touch x) \x1b[2J", 1),
		strings.Replace(override, "by=alice", "by=alice\u2028by=root", 1), strings.Replace(override, "by=alice", "by= alice\t", 1), "", ";;;", "colour; uid=u; by=alice; until=2026-11-20T10:30:00+02:00; a; b; c", "colour;uid=;by=a;until=2026-11-20T10:30:00Z;x", "*; uid=; until=2026-11-20T10:30:00Z; x",
		"colour; uid=; by=a; until=2026-11-20T10:30:00Z; x\ncolour; uid=; by=a; until=2026-11-20T10:30:00Z; x", " colour ; uid= ; by=CN=a b ; until=2026-11-20T10:30:00.5Z ; \u200b", strings.Repeat("x", 2000),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := v1alpha1.ParseOverride(text)
		if err != nil {
			return
		}
		if o.Policy == "" || o.Reason == "" || o.By == "" || strings.ContainsAny(o.Policy+string(o.UID)+o.By, ";") || strings.ContainsFunc(o.Policy+string(o.UID)+o.By+o.Reason, unicode.IsControl) {
			t.Errorf("understood as %+v", o)
		}
		again, err := v1alpha1.ParseOverride(fmt.Sprintf("%s; uid=%s; by=%s; until=%s; %s", o.Policy, o.UID, o.By, o.Until.Format(time.RFC3339Nano), o.Reason))
		if err != nil && len(text) <= 512 { // written out it may be too long
			t.Fatalf("as %+v it is not understood: %v", o, err)
		}
		if err == nil && (again.Policy != o.Policy || again.UID != o.UID || again.By != o.By || again.Reason != o.Reason || !again.Until.Equal(o.Until)) {
			t.Errorf("understood as %+v, and written out as %+v", o, again)
		}
	})
}
