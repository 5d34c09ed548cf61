package testrun

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/lru"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
)

const (
	// maxConcurrent limits the concurrent test runs; more wait.
	maxConcurrent = 2
	// mostCached limits the cached findings: a dry run and the write after it share one test run.
	mostCached = 64
	// minBudget is the shortest time with which a test run starts, and margin is reserved of the deadline for the response.
	minBudget, margin = 300 * time.Millisecond, 250 * time.Millisecond
	// backgroundTimeout is the time limit of a test run that no request waits for.
	backgroundTimeout = 30 * time.Second
)

// Options are the arguments of New.
type Options struct {
	// World returns all existing RegoPolicies.
	World func(context.Context) ([]v1alpha1.RegoPolicy, error)
	// Patchable is what policies may patch.
	Patchable grants.Patchable
	// Ungranted returns the rights that Sallyport lacks for reads, as far as known before ctx ends; nil means unknown.
	Ungranted func(ctx context.Context, policy string, reads []engine.Read) []catalog.Grant
	// Process runs the child processes.
	Process Process
	// Within is the time limit of a test run that a request waits for.
	Within time.Duration
	// Match checks spec.match of a policy. It returns the entries for which the API server would never call the policy's webhook, and those
	// that the cluster does not serve; one line each, which begins with the field. Nil skips the check.
	Match func(ctx context.Context, object *v1alpha1.RegoPolicy) (refused, unserved []string)
	// Hint is appended to errors.
	Hint string
	// Registry registers the metrics.
	Registry prometheus.Registerer
}

// Runner compiles and tests policies, a few at a time. It answers the testRun facts of policies.
type Runner struct {
	Options
	metrics    *metrics
	slots      chan struct{}
	background chan struct{} // one at a time that no request waits for
	found      *lru.Cache    // findings, by the digest of the run
}

// New returns a runner.
func New(o Options) *Runner {
	return &Runner{
		Options: o, metrics: newMetrics(o.Registry), slots: make(chan struct{}, maxConcurrent), background: make(chan struct{}, 1),
		found: lru.New(mostCached),
	}
}

// RunTests returns the [Finding] for a document: a RegoPolicy, or {"deleted": name} for a deletion. Of a RegoPolicy without modules
// only its match is checked.
func (r *Runner) RunTests(ctx context.Context, document engine.Value) (engine.Value, error) {
	finding, err := r.answer(ctx, document)
	if err != nil {
		if r.Hint != "" {
			err = fmt.Errorf("%w; %s", err, r.Hint)
		}
		return engine.Value{}, err
	}
	members, err := runtime.DefaultUnstructuredConverter.ToUnstructured(finding)
	if err != nil {
		return engine.Value{}, err
	}
	return engine.ValueOf(members)
}

func (r *Runner) answer(ctx context.Context, document engine.Value) (*Finding, error) {
	within := r.Within
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)-margin)
	}
	wanted, deleted, err := decodeDocument(document)
	if err != nil {
		return nil, fmt.Errorf("reading the RegoPolicy to test: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errOverdue)
	defer cancel()
	world, err := r.World(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the existing RegoPolicies: %w", err)
	}
	onlyMatched := deleted == "" && len(wanted.Spec.Modules) == 0
	if onlyMatched {
		for i := range world {
			if o := &world[i]; o.Name == wanted.Name {
				wanted.Spec.Package, wanted.Spec.Modules = o.Spec.Package, o.Spec.Modules
			}
		}
	}
	ungranted := r.ungranted(ctx, wanted)
	var finding *Finding
	if onlyMatched {
		finding = r.checkMatch(wanted)
	} else {
		run := Run{World: world, Deleted: deleted, Patchable: r.Patchable}
		if deleted == "" {
			run.Candidate = wanted.DeepCopy() // trim modifies it
		}
		name := run.trim()
		finding, err = r.lookUpOrRun(ctx, &run, name, false)
	}
	if err != nil {
		return nil, err
	}
	return r.withGrants(r.addRegistration(ctx, wanted, finding), <-ungranted), nil
}

// decodeDocument returns the RegoPolicy of a document, or the name of the one to delete.
func decodeDocument(document engine.Value) (*v1alpha1.RegoPolicy, string, error) {
	decoded, err := document.Decode()
	if err != nil {
		return nil, "", err
	}
	members, ok := decoded.(map[string]any)
	if !ok {
		return nil, "", errors.New("not an object")
	}
	if err := utiljson.ConvertMapNumbers(members, 0); err != nil {
		return nil, "", err
	}
	wanted := &v1alpha1.RegoPolicy{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(members, wanted)
	return wanted, document.Get("deleted").Text(), err
}

// addRegistration adds to a finding whether the API server would call the policy's webhook.
func (r *Runner) addRegistration(ctx context.Context, object *v1alpha1.RegoPolicy, found *Finding) *Finding {
	if r.Match == nil || object.Spec.Match == nil {
		return found
	}
	if found.unparsed() {
		object = object.DeepCopy()
		object.Spec.Modules = nil // they must not be parsed in this process, without limits
	}
	f := *found // the cached finding must not change
	refused, unserved := r.Match(ctx, object)
	f.Problems = slices.Clone(f.Problems)
	for _, why := range refused {
		f.Problems = append(f.Problems, Problem{Kind: v1alpha1.ReasonNotRegistrable, File: object.Name, Message: why})
	}
	f.Unserved = unserved
	f.truncate()
	return &f
}

// checkMatch checks only what a policy matches, without compiling it.
func (r *Runner) checkMatch(object *v1alpha1.RegoPolicy) *Finding {
	f := &Finding{Took: "0s"}
	if err := catalog.CheckMatch(&object.Spec); err != nil {
		f.Problems = problems(object.Name, v1alpha1.ReasonCompileFailed, err)
	}
	if catalog.Patches(object) {
		f.Unpatchable = catalog.Unpatchable(object.Spec.Match, r.Patchable)
	}
	f.truncate()
	return f
}

// Run runs a test run that no request waits for. One runs at a time, so that slots remain for requests.
func (r *Runner) Run(ctx context.Context, run *Run) (*Finding, error) {
	name := run.trim()
	select {
	case r.background <- struct{}{}:
		defer func() { <-r.background }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, backgroundTimeout, errOverdue)
	defer cancel()
	return r.lookUpOrRun(ctx, run, name, true)
}

// lookUpOrRun returns the cached finding, or runs the test run until the deadline of the context. An exceeded limit is cached only
// if the time was the full limit: the time for a request varies.
func (r *Runner) lookUpOrRun(ctx context.Context, run *Run, name string, unhurried bool) (*Finding, error) {
	text, err := json.Marshal(run)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(text)
	if known, ok := r.found.Get(key); ok {
		r.metrics.runs.WithLabelValues(resultCached).Inc()
		return known.(*Finding), nil
	}
	began := time.Now()
	finding, err := r.start(ctx, text, name)
	r.metrics.count(finding, err, time.Since(began))
	if err == nil && (unhurried || !finding.Has(LimitExceeded)) {
		r.found.Add(key, finding)
	}
	return finding, err
}

var errBusy = errors.New("too many RegoPolicies are being tested at the same time; try again")

// start waits for a slot, and runs the test run in a child.
func (r *Runner) start(ctx context.Context, text []byte, name string) (*Finding, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errOverdue) {
			return nil, errBusy
		}
		return nil, context.Cause(ctx)
	}
	deadline, _ := ctx.Deadline()
	within := time.Until(deadline)
	if within < minBudget {
		return nil, errBusy
	}
	return r.Process.run(ctx, text, name, within)
}

// trim removes what a test run does not depend on, so that equal runs share a cache entry: a policy is tested with the libraries, a
// library with everything. It returns the name of the tested policy.
func (t *Run) trim() string {
	all := t.Deleted != "" || t.Candidate.Spec.Library && !t.Alone
	name := t.Deleted
	if t.Candidate != nil {
		name = t.Candidate.Name
		bare := trimmed(t.Candidate, true)
		t.Candidate = &bare
	}
	for i := range t.World { // one that becomes a policy is no library any more
		all = all || t.World[i].Name == name && t.World[i].Spec.Library && !t.Alone
	}
	t.Alone = t.Alone && (all || t.Candidate.Spec.Library)
	var world []v1alpha1.RegoPolicy
	for i := range t.World {
		if o := &t.World[i]; all || o.Spec.Library {
			world = append(world, trimmed(o, all && t.Candidate != nil))
		}
	}
	slices.SortFunc(world, func(a, b v1alpha1.RegoPolicy) int { return strings.Compare(a.Name, b.Name) })
	t.World = world
	return name
}

// trimmed returns a policy without its enforcement, and without metadata that does not affect the compilation order.
func trimmed(o *v1alpha1.RegoPolicy, tests bool) v1alpha1.RegoPolicy {
	spec := o.Spec
	spec.Mode, spec.OnError, spec.FailurePolicy, spec.Override, spec.BackgroundAudit, spec.TimeoutMilliseconds = "", "", "", "", "", 0
	if !tests {
		spec.Tests = nil
	}
	return v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: o.Name, CreationTimestamp: o.CreationTimestamp}, Spec: spec}
}

// grantsTimeout is the time limit for checking rights. Unknown rights are omitted; the status will have them.
const grantsTimeout = time.Second

// ungranted starts checking which rights are missing for a policy's reads.
func (r *Runner) ungranted(ctx context.Context, object *v1alpha1.RegoPolicy) <-chan []catalog.Grant {
	answer := make(chan []catalog.Grant, 1)
	reads := catalog.ReadsOf(object)
	if r.Ungranted == nil || len(reads) == 0 {
		close(answer)
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, grantsTimeout)
	go func() {
		defer cancel()
		answer <- r.Ungranted(ctx, object.Name, reads)
	}()
	return answer
}

// withGrants returns a copy of a finding with the missing rights, which are not cached.
func (r *Runner) withGrants(f *Finding, lacking []catalog.Grant) *Finding {
	if len(lacking) == 0 {
		return f
	}
	found, reads := *f, map[string]bool{}
	for _, g := range lacking {
		resource := schema.GroupResource{Group: g.APIGroup, Resource: g.Resource}.String()
		found.Ungranted = append(found.Ungranted, Ungranted{Resource: resource, Verbs: g.Verbs})
		reads[resource] = true
	}
	found.Grant = r.Patchable.By.Upgrade("rbac.reads", reads)
	found.truncate()
	return &found
}
