package testrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// fixture is a runner of tests in a world that can change.
type fixture struct {
	*Runner
	mu    sync.Mutex
	world []v1alpha1.RegoPolicy
	err   error
}

func newFixture(t *testing.T, act string, within time.Duration, all ...*v1alpha1.RegoPolicy) *fixture {
	t.Helper()
	s := &fixture{world: world(all...)}
	s.Runner = New(Options{
		World: func(context.Context) ([]v1alpha1.RegoPolicy, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.world, s.err
		},
		Process: process(t, act), Within: within, Hint: "ask somebody else", Registry: prometheus.NewRegistry(),
	})
	return s
}

func document(t *testing.T, object any) engine.Value {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	v, err := engine.ParseValue(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// asks gives what is answered, as a finding in lines.
func (s *fixture) asks(ctx context.Context, t *testing.T, object any) (string, error) {
	t.Helper()
	v, err := s.RunTests(ctx, document(t, object))
	if err != nil {
		return "", err
	}
	text, err := v.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var f Finding
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return told(&f), nil
}

// counted are the test runs by result.
func (s *fixture) counted() map[string]int {
	counts := map[string]int{}
	for _, result := range []string{resultPassed, resultRefused, resultExceeded, resultCached, resultBusy, resultError} {
		if n := int(testutil.ToFloat64(s.metrics.runs.WithLabelValues(result))); n > 0 {
			counts[result] = n
		}
	}
	return counts
}

func (s *fixture) counts(t *testing.T, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, s.counted()); diff != "" {
		t.Errorf("test runs by result (-want +got):\n%s", diff)
	}
}

func TestRunnerAnswersPolicies(t *testing.T) {
	loud := library("loud", `say(x) := upper(x)`, 0)
	s := newFixture(t, Subcommand, long, loud, importing("a", "loud.say"))
	selecting := func(operator metav1.LabelSelectorOperator) any {
		p := toy("a")
		p.Spec.Modules, p.Spec.Tests = nil, nil
		p.Spec.NamespaceModes = []v1alpha1.NamespaceMode{{Mode: v1alpha1.ModeWarn, NamespaceSelector: metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: operator}},
		}}}
		return p
	}
	for name, tc := range map[string]struct {
		document any
		want     string
	}{
		"a policy":              {importing("b", "loud.say"), "2 passed"},
		"a broken one":          {toy("a", "x if y"), "CompileFailed a/a.rego:17:6: var y is unsafe"},
		"a library that goes":   {map[string]any{"deleted": "loud"}, "breaks a: a/a.rego:16:10: data.sallyport.lib.loud.say is neither a parameter nor in this policy or a library"},
		"a policy that goes":    {map[string]any{"deleted": "a"}, ""},
		"what matches":          {selecting(metav1.LabelSelectorOpExists), ""},
		"what does not match":   {selecting("Bogus"), `CompileFailed a: spec.namespaceModes[0].namespaceSelector: "Bogus" is not a valid label selector operator`},
		"a field of the future": {map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"match": toy("x").Spec.Match, "soon": 1}}, ""},
	} {
		got, err := s.asks(t.Context(), t, tc.document)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	s.counts(t, map[string]int{resultPassed: 2, resultRefused: 2})
}

// A dry run and the write after it are one test run; another text, or another library, is another one.
func TestRunnerCachesFindings(t *testing.T) {
	loud, low := library("loud", `say(x) := upper(x)`, 0), library("low", `say(x) := lower(x)`, 0)
	s := newFixture(t, Subcommand, long, loud, low)
	ask := func(object any, want string) {
		t.Helper()
		if got, err := s.asks(t.Context(), t, object); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	ask(importing("a", "loud.say"), "2 passed")
	ask(importing("a", "loud.say"), "2 passed")
	s.world = world(low, loud) // caches have no order
	again := importing("a", "loud.say")
	again.Spec.Mode, again.Labels = v1alpha1.ModeAudit, map[string]string{"x": "y"}
	ask(again, "2 passed")
	s.counts(t, map[string]int{resultPassed: 1, resultCached: 2})
	s.world = world(library("loud", `say(x) := lower(x)`, 0))
	ask(importing("a", "loud.say"), "2 passed")
	s.world = nil
	ask(importing("a", "loud.say"), "missing sallyport.lib.loud.say")
	s.counts(t, map[string]int{resultPassed: 3, resultCached: 2})
	for i := range mostCached { // which leaves no room for what is older
		f := &Finding{Took: fmt.Sprint(i)}
		s.found.Add([32]byte{byte(i)}, f)
	}
	if n := s.found.Len(); n != mostCached {
		t.Errorf("%d findings are kept", n)
	}
	ask(importing("a", "loud.say"), "missing sallyport.lib.loud.say")
	s.counts(t, map[string]int{resultPassed: 4, resultCached: 2})
}

// That a limit was broken is said of that moment. The next one may have more time.
func TestRunnerCachesNoLimits(t *testing.T) {
	limited(t)
	s := newFixture(t, Subcommand, time.Second)
	endless := tested(toy("a"), endlessTest)
	for range 2 {
		got, err := s.asks(t.Context(), t, endless)
		if err != nil || !strings.HasPrefix(got, "LimitExceeded a: its test run did not finish within ") {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	s.counts(t, map[string]int{resultExceeded: 2})
}

// declared is a context with a deadline that never expires, so that what must end before the deadline ends by itself, however slow the
// machine is.
type declared struct {
	context.Context
	deadline time.Time
}

// Deadline returns the declared deadline.
func (d declared) Deadline() (time.Time, bool) { return d.deadline, true }

// The deadline of the request counts, and leaves time for what comes after.
func TestRunnerKeepsTheDeadlineOfTheRequest(t *testing.T) {
	s := newFixture(t, "sleep", long)
	const after = 2 * time.Second
	got, err := s.asks(declared{t.Context(), time.Now().Add(after)}, t, toy("a"))
	rest, limited := strings.CutPrefix(got, "LimitExceeded a: its test run did not finish within ")
	limit, _, _ := strings.Cut(rest, ";")
	within, parseErr := time.ParseDuration(limit)
	if err != nil || !limited || parseErr != nil || within > after-margin {
		t.Errorf("got %q, %v, want a limit of at most %v", got, err, after-margin)
	}
}

// Two at once; who finds no room in time is told so, and one that ends makes room for the next.
func TestRunsAreLimitedInNumber(t *testing.T) {
	s := newFixture(t, "tired", long)
	ctx, cancel := context.WithCancel(t.Context())
	var two sync.WaitGroup
	for i := range maxConcurrent {
		two.Go(func() { _, _ = s.asks(ctx, t, toy(fmt.Sprintf("tiring%d", i))) })
	}
	for len(s.slots) < maxConcurrent {
		time.Sleep(time.Millisecond)
	}
	late := declared{t.Context(), time.Now().Add(margin + 500*time.Millisecond)}
	if got, err := s.asks(late, t, toy("a")); !errors.Is(err, errBusy) || !strings.HasSuffix(err.Error(), "try again; ask somebody else") {
		t.Errorf("got %q, %v", got, err)
	}
	if len(childrenOf(t)) > maxConcurrent {
		t.Errorf("there are %v", childrenOf(t))
	}
	// What no request waits for waits as long as it takes; here for the next one to end.
	done := make(chan error)
	go func() {
		f, err := s.Run(t.Context(), &Run{Candidate: toy("a")})
		if err == nil && f.Took != "awake" {
			err = fmt.Errorf("found %+v", f)
		}
		done <- err
	}()
	cancel()
	two.Wait()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left := childrenOf(t); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestRunsThatCannotBeMade(t *testing.T) {
	s := newFixture(t, "silent", long)
	if got, err := s.asks(t.Context(), t, toy("a")); err == nil || err.Error() != "the test run ended without a result; ask somebody else" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, nonsense := range []any{"text", map[string]any{"spec": []any{1}}} {
		if got, err := s.asks(t.Context(), t, nonsense); err == nil || !strings.HasPrefix(err.Error(), "reading the RegoPolicy to test: ") {
			t.Errorf("got %q, %v", got, err)
		}
	}
	s.err = errors.New("no API server")
	if got, err := s.asks(t.Context(), t, toy("b")); !errors.Is(err, s.err) {
		t.Errorf("got %q, %v", got, err)
	}
	s.counts(t, map[string]int{resultError: 1})
}
