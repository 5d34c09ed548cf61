package webhooks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/record"
)

// A line with a record is told from all others by how it begins.
func TestRecordsBeginWithTheirVersion(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`))
	if written := f.only(t); written.Version != record.Version || !strings.HasPrefix(f.records.String(), `{"decisionRecord":1,`) {
		t.Errorf("got %s", f.records.String())
	}
}

const asksForSecrets = `facts.secrets := {"apiVersion": "v1", "kind": "Service", "namespace": "ns"}` + "\n\n"

// What a policy failed on is recorded like what it decided on: only so can be told whether an edit mends it.
func TestRecordsOfFailuresHaveTheFacts(t *testing.T) {
	for name, rules := range map[string]string{
		"an evaluation":           asksForSecrets + "warn contains \"w\" if to_number(\"x\") == count(input.facts.secrets)\n",
		"a patch that is no good": asksForSecrets + `patch contains {"op": "add", "path": "/no/where", "value": count(input.facts.secrets)} if true` + "\n",
	} {
		f := newFixture(t, world{answer: []any{}}, policyOf("p", rules))
		review := reviewOf(t, admissionv1.Create, `{"name": "x"}`)
		if strings.Contains(rules, "patch") {
			f.Mutate(t.Context(), review)
		} else {
			f.Validate(t.Context(), review)
		}
		p := f.only(t).Policies[0]
		if fact := p.Facts["secrets"]; p.Verdict != "error_denied" || fact.Query == nil || fact.Query.Kind != "Service" || fact.Value == nil {
			t.Errorf("%s: got %+v", name, p)
		}
	}
}

// What the gate asks itself is recorded too: which policies a request meets, and whether an override counts.
func TestRecordsHaveWhatTheGateAsked(t *testing.T) {
	byTier := func(s *v1alpha1.RegoPolicySpec) {
		s.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	}
	gold := map[string]any{"metadata": map[string]any{"name": "ns", "labels": map[string]any{"tier": "gold"}}}
	f := newFixture(t, world{answer: gold}, policyOf("p", denies("red", "TooRed", 403), byTier))
	f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x"}`))
	fact := f.only(t).Facts["namespace"]
	if text, _ := json.Marshal(fact); fact.Query == nil || fact.Query.Name != "ns" || !strings.Contains(string(text), `"tier":"gold"`) {
		t.Errorf("got %s", text)
	}
}

// A webhook of one policy says which, and a reconciler's question what it acts on.
func TestRecordsTellTheQuestion(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)), policyOf("q", denies("red", "TooRed", 403)))
	f.Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Only: "p", Review: reviewOf(t, admissionv1.Create, `{"name": "x"}`)})
	if record := f.only(t); record.Only != "p" || len(record.Policies) != 1 {
		t.Errorf("got %+v", record)
	}
	takes := policyOf("p", `outcome.supersedes contains "a" if true`+"\n", func(s *v1alpha1.RegoPolicySpec) {
		r := &s.Match.Resources[0]
		r.APIGroups, r.APIVersions, r.Resources = []string{"*"}, []string{"*"}, []string{"virtualmachineoperations"}
	})
	for _, endpoint := range []string{decision.Arbitrating, decision.Validating} {
		f = newFixture(t, world{}, takes)
		operation := svmop("o", v1alpha1.OperationStop, false)
		if endpoint == decision.Arbitrating {
			if got, err := f.Arbitrate(t.Context(), &operation, svm("Running"), nil); err != nil || !slices.Equal(got.Supersedes, []string{"a"}) {
				t.Fatalf("got %+v, %v", got, err)
			}
		} else {
			f.Validate(t.Context(), creationOf(t, &operation))
		}
		record := f.only(t)
		text, _ := json.Marshal(record.Policies[0].Outcome)
		if want := map[string]string{decision.Arbitrating: `{"supersedes":["a"]}`, decision.Validating: "null"}[endpoint]; string(text) != want {
			t.Errorf("%s: the outcome is %s", endpoint, text)
		}
	}
}

// A recorded request is the request, to the last digit of a number.
func TestReviewOfARecord(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	asked := reviewOf(t, admissionv1.Update, `{"name": "x", "n": 12345678901234567890, "f": 1.50}`, func(r *admissionv1.AdmissionRequest) {
		r.UserInfo.Groups = []string{"a"}
	})
	f.Validate(t.Context(), asked)
	f.recorder.Close(time.Minute)
	decoder := json.NewDecoder(&f.records)
	decoder.UseNumber()
	var record record.Record
	if err := decoder.Decode(&record); err != nil {
		t.Fatal(err)
	}
	again, err := record.Review()
	if err != nil {
		t.Fatal(err)
	}
	if !again.Document.Equal(asked.Document) || again.Request.UserInfo.Groups[0] != "a" || again.Subject().UID != asked.Subject().UID {
		t.Errorf("got %+v", again.Request)
	}
}

// Somebody is told of the Pod of a machine whose eviction is put off, and of nothing else.
func TestEvictionsThatArePutOff(t *testing.T) {
	const later = denyMetadata + `deny contains {"reason": "Later", "code": %d, "message": "m", "details": {"group": %q, "kind": %q, "name": "web-1"}}` + "\n\n"
	evictions := func(s *v1alpha1.RegoPolicySpec) { s.Match.Resources[0].Resources = []string{"pods/eviction"} }
	of := func(resource, subresource string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) { r.Resource.Resource, r.SubResource = resource, subresource }
	}
	for name, tc := range map[string]struct {
		rules  string
		change []func(*admissionv1.AdmissionRequest)
		told   bool
	}{
		"a machine":               {fmt.Sprintf(later, "Later", 429, "sallyport.dev", "VirtualMachine"), nil, true},
		"one that is never to go": {fmt.Sprintf(later, "Later", 403, "sallyport.dev", "VirtualMachine"), nil, false},
		"another kind":            {fmt.Sprintf(later, "Later", 429, "sallyport.dev", "VirtualDisk"), nil, false},
		"another group":           {fmt.Sprintf(later, "Later", 429, "kubevirt.io", "VirtualMachine"), nil, false},
		"a Pod that may go":       {"warn contains \"w\" if input.request.name == \"x\"\n\n", nil, false},
		"one that is tried out":   {fmt.Sprintf(later, "Later", 429, "sallyport.dev", "VirtualMachine"), []func(*admissionv1.AdmissionRequest){dryRun}, false},
		"one that is tried out, as by kubectl drain (kubevirt#11532)": {fmt.Sprintf(later, "Later", 429, "sallyport.dev", "VirtualMachine"),
			[]func(*admissionv1.AdmissionRequest){evictedWith(`{"dryRun": ["All"]}`)}, false},
		"one with options that change nothing": {fmt.Sprintf(later, "Later", 429, "sallyport.dev", "VirtualMachine"),
			[]func(*admissionv1.AdmissionRequest){evictedWith(`{"dryRun": [], "propagationPolicy": "Orphan"}`)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, world{}, policyOf("p", tc.rules, evictions))
			var told []types.NamespacedName
			f.recorder.OnDeniedEviction(func(pod types.NamespacedName) { told = append(told, pod) })
			f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{}`, append(tc.change, of("pods", "eviction"))...))
			if (len(told) == 1) != tc.told || tc.told && told[0] != (types.NamespacedName{Namespace: "ns", Name: "cm"}) {
				t.Errorf("told of %v", told)
			}
		})
	}
}

// evictedWith makes a request an eviction with those deleteOptions.
func evictedWith(options string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) {
		r.Object.Raw = []byte(`{"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "cm"}, "deleteOptions": ` + options + `}`)
	}
}

// Wherever a request says that it is only tried out, its record says so, too, and nothing follows from it (kubernetes#137543). What looks
// alike in an object means nothing.
func TestWhereADryRunHides(t *testing.T) {
	evicts := func(r *admissionv1.AdmissionRequest) { r.SubResource = "eviction" }
	options := func(text string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) { r.Options.Raw = []byte(text) }
	}
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		change    []func(*admissionv1.AdmissionRequest)
		want      bool
	}{
		"the request":                   {admissionv1.Update, list(dryRun), true},
		"its options":                   {admissionv1.Delete, list(options(`{"dryRun": ["All"], "propagationPolicy": "Foreground"}`)), true},
		"the deletion of a collection":  {admissionv1.Delete, list(options(`{"dryRun": ["All"]}`), func(r *admissionv1.AdmissionRequest) { r.Name = "" }), true},
		"an Eviction":                   {admissionv1.Create, list(evicts, evictedWith(`{"dryRun": ["All"]}`)), true},
		"an Eviction without one":       {admissionv1.Create, list(evicts, evictedWith(`{"preconditions": {"uid": "u-1"}}`)), false},
		"an Eviction without options":   {admissionv1.Create, list(evicts, evictedWith(`null`)), false},
		"an object with a deleteOption": {admissionv1.Create, list(evictedWith(`{"dryRun": ["All"]}`)), false},
		"options without one":           {admissionv1.Delete, list(options(`{"dryRun": [], "propagationPolicy": "Orphan"}`)), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
			f.Validate(t.Context(), reviewOf(t, tc.operation, red, tc.change...))
			f.recorder.Close(time.Minute)
			var record record.Record
			if err := json.Unmarshal(f.records.Bytes(), &record); err != nil {
				t.Fatal(err)
			}
			if record.DryRun != tc.want {
				t.Errorf("the record says dryRun: %v", record.DryRun)
			}
		})
	}
}
