package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/record"
	"sallyport.dev/sallyport/webhooks/server"
)

// setOf makes a set with the states of its policies, broken ones too.
func setOf(t *testing.T, c *catalog.Catalog, policies ...v1alpha1.RegoPolicy) (*catalog.Set, []catalog.State) {
	t.Helper()
	return c.Build(t.Context(), policies, nil)
}

func brokenPolicy(name string, change ...func(*v1alpha1.RegoPolicySpec)) v1alpha1.RegoPolicy {
	return policyOf(name, "x := y\n", change...)
}

func onPolicies(r *admissionv1.AdmissionRequest) {
	r.Resource = metav1.GroupVersionResource{Group: v1alpha1.GroupName, Version: "v1alpha1", Resource: "regopolicies"}
}

func lastRecord(t *testing.T, f *fixture) record.Record {
	t.Helper()
	f.recorder.Close(time.Minute)
	lines := strings.Split(strings.TrimSpace(f.records.String()), "\n")
	var last record.Record
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatalf("reading the record %q: %v", lines, err)
	}
	return last
}

// A gate without policies judges nothing: neither does it admit.
func TestNothingIsJudgedWithoutASet(t *testing.T) {
	f := &fixture{registry: prometheus.NewRegistry(), unwritten: prometheus.NewRegistry()}
	f.Decider = decision.NewDecider(nil, world{}, record.NewRecorder(f.registry, &f.records, false), time.Now)
	for _, path := range []string{server.ValidatePath, server.MutatePath} {
		if w := serve(f, path, goodReview); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "not loaded") {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	if n := f.count(t, "sallyport_rejected_reviews_total", "no_policies", decision.Validating); n != 1 {
		t.Errorf("counted %v", n)
	}
	operation := svmop("stop", v1alpha1.OperationStop, false)
	if _, err := f.Arbitrate(t.Context(), &operation, svm("Running"), nil); !errors.Is(err, decision.ErrNoPolicies) {
		t.Errorf("Arbitrate gave %v", err)
	}
	if _, err := f.Admits(t.Context(), svm("Running")); !errors.Is(err, decision.ErrNoPolicies) {
		t.Errorf("Admits gave %v", err)
	}
	if got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{}`, onPolicies)); got == nil || !got.Allowed {
		t.Errorf("a policy that would help got %+v", got)
	}

	set, _ := setOf(t, &catalog.Catalog{}, policyOf("p", denies("red", "TooRed", 403)))
	f.Swap(set)
	if got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`)); got == nil || got.Allowed {
		t.Errorf("after the first set: got %+v", got)
	}
}

// A broken policy is one refusal, as its mode and onError have it, and keeps reconcilers waiting.
func TestBrokenPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		change  []func(*v1alpha1.RegoPolicySpec)
		allowed bool
		warned  bool
		verdict string
	}{
		"Enforce and Deny":  {nil, false, false, "error_denied"},
		"Enforce and Allow": {[]func(*v1alpha1.RegoPolicySpec){onErrorAllow}, true, true, "error_allowed"},
		"Warn":              {[]func(*v1alpha1.RegoPolicySpec){mode(v1alpha1.ModeWarn)}, true, true, "error_allowed"},
		"Audit":             {[]func(*v1alpha1.RegoPolicySpec){mode(v1alpha1.ModeAudit)}, true, false, "error_allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, world{})
			set, _ := setOf(t, &catalog.Catalog{}, brokenPolicy("p", tc.change...), policyOf("fine", denies("red", "TooRed", 403)))
			f.Swap(set)
			review := reviewOf(t, admissionv1.Create, `{"name": "x"}`)
			if got := f.Mutate(t.Context(), review); !got.Allowed || got.AuditAnnotations["policies"] != "" {
				t.Errorf("Mutate gave %+v", got)
			}
			got := f.Validate(t.Context(), review)
			if got.Allowed != tc.allowed || (len(got.Warnings) == 1) != tc.warned {
				t.Errorf("got %+v", got)
			}
			said := strings.Replace(strings.Join(got.Warnings, "\n"), "would be denied: ", "", 1)
			if !got.Allowed {
				said = got.Result.Message
			}
			const want = "[p/CompileFailed] policy evaluation failed: it does not compile: p/p.rego:8:6: "
			if !strings.HasPrefix(said, want) && (tc.warned || !tc.allowed) || !tc.allowed && !strings.Contains(said, "repair RegoPolicy p, or set its spec.mode to Audit") {
				t.Errorf("got %q\nwant %s", said, want)
			}
			if annotation := got.AuditAnnotations["policies"]; !strings.HasSuffix(annotation, ",p@none") {
				t.Errorf("annotated %q", annotation)
			}
			if p := lastRecord(t, f).Policies[1]; p.Policy != "p" || p.Revision != "" || p.Verdict != tc.verdict || p.Cause != "CompileFailed" {
				t.Errorf("recorded %+v", p)
			}
		})
	}
}

func TestBrokenPoliciesKeepReconcilersWaiting(t *testing.T) {
	f := newFixture(t, world{})
	onMachines := func(s *v1alpha1.RegoPolicySpec) {
		s.Match.Resources[0].APIGroups, s.Match.Resources[0].APIVersions = []string{"*"}, []string{"*"}
		s.Match.Resources[0].Resources = []string{"*"}
		s.Reads = []v1alpha1.PolicyRead{{APIVersion: "sallyport.dev/v1alpha1", Kind: "VSphereServer"}}
	}
	operation := svmop("stop", v1alpha1.OperationStop, false)
	for _, tc := range []struct {
		change  func(*v1alpha1.RegoPolicySpec)
		waiting bool
	}{{func(*v1alpha1.RegoPolicySpec) {}, true}, {onErrorAllow, false}, {mode(v1alpha1.ModeAudit), false}} {
		set, _ := setOf(t, &catalog.Catalog{}, brokenPolicy("p", onMachines, tc.change))
		f.Swap(set)
		if r, err := f.Arbitrate(t.Context(), &operation, svm("Running"), nil); (err != nil) != tc.waiting || r.Denied {
			t.Errorf("Arbitrate gave %+v, %v", r, err)
		}
		if r, err := f.Admits(t.Context(), svm("Running")); (err != nil) != tc.waiting || r.Denied {
			t.Errorf("Admits gave %+v, %v", r, err)
		}
	}
}

// Records and annotations name the revision that decided, not the one that is broken.
func TestLastGoodRevisionIsRecorded(t *testing.T) {
	f := newFixture(t, world{})
	c := &catalog.Catalog{}
	_, good := setOf(t, c, policyOf("p", denies("red", "TooRed", 403)))
	set, now := setOf(t, c, brokenPolicy("p"))
	f.Swap(set)
	if !now[0].LastGood || now[0].ActiveHash != good[0].ActiveHash {
		t.Fatalf("got %+v", now[0])
	}
	got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`))
	if got.Allowed || got.Result.Reason != "TooRed" || got.AuditAnnotations["policies"] != "p@"+good[0].ActiveHash {
		t.Errorf("got %+v", got)
	}
	if p := lastRecord(t, f).Policies[0]; p.Revision != good[0].ActiveHash {
		t.Errorf("recorded %+v", p)
	}
}

// A request is judged by one set from beginning to end, however often the sets change meanwhile: each of these denies with
// its own number, by two policies.
func TestRequestsUnderSwaps(t *testing.T) {
	f := newFixture(t, world{})
	c := &catalog.Catalog{}
	const sets = 8
	all := make([]*catalog.Set, sets)
	explained := map[string]string{} // what is said of a request, by the revisions that say it
	for n := range all {
		numbered := func(name string) v1alpha1.RegoPolicy {
			return policyOf(name, fmt.Sprintf(denyMetadata+"deny contains {\"reason\": \"Never\", \"message\": \"%s %d\"} if true\n", "Never", name, n))
		}
		set, states := setOf(t, c, numbered("a"), numbered("b"))
		all[n] = set
		revisions := fmt.Sprintf("a@%s,b@%s", states[0].ActiveHash, states[1].ActiveHash)
		explained[revisions] = fmt.Sprintf("[a/Never] a %d\n[b/Never] b %d", n, n)
	}
	f.Swap(all[0])
	review := reviewOf(t, admissionv1.Create, `{"name": "x"}`)
	stop := make(chan struct{})
	var swapping, asking sync.WaitGroup
	swapping.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				f.Swap(all[n%sets])
			}
		}
	})
	for range 4 {
		asking.Go(func() {
			for range 250 {
				got := f.Validate(t.Context(), review)
				want, ok := explained[got.AuditAnnotations["policies"]]
				if !ok || got.Allowed {
					t.Errorf("no set explains %+v", got)
					return
				}
				if diff := cmp.Diff(want, got.Result.Message); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
	asking.Wait()
	close(stop)
	swapping.Wait()
}

// Without a recorder, decisions are made and answered like with one.
func TestGateWithoutRecorder(t *testing.T) {
	set, _ := setOf(t, &catalog.Catalog{}, policyOf("p", denies("red", "TooRed", 403)))
	g := decision.NewDecider(set, world{}, nil, time.Now)
	q := &decision.Question{Endpoint: decision.Validating, Review: reviewOf(t, admissionv1.Create, `{"name": "x", "red": true}`)}
	if got := g.Answer(t.Context(), q); got == nil || got.Allowed {
		t.Errorf("got %+v, want a denial", got)
	}
	operation := svmop("stop", v1alpha1.OperationStop, false)
	if admission, err := g.Arbitrate(t.Context(), &operation, svm("Running"), nil); err != nil {
		t.Errorf("got %v, %v", admission, err)
	}
}
