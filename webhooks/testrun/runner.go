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
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/lru"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
)

const (
	// atOnce is how many test runs run at once; more wait.
	atOnce = 2
	// mostCached is how many findings are kept: a dry run and the write after it are one test run.
	mostCached = 64
	// enough is the least time that a test run is begun with, and margin what is left of a deadline for what comes after it.
	enough, margin = 300 * time.Millisecond, 250 * time.Millisecond
	// patience is how long a test run may take that no request waits for.
	patience = 30 * time.Second
)

// Options of runner.
type Options struct {
	// World gives all RegoPolicies as they are.
	World func(context.Context) ([]v1alpha1.RegoPolicy, error)
	// Weights are estimates of the memory that policies need, by name, in bytes; nil: nobody knows.
	Weights func() map[string]int64
	// Patchable is what policies may patch.
	Patchable grants.Patchable
	// Ungranted tells which rights Sallyport lacks to read something, as far as that can be found out in time; nil: nobody knows.
	Ungranted func(ctx context.Context, policy string, reads []engine.Read) []catalog.Grant
	// Process carries them out.
	Process Process
	// Within is how long a test run may take that a request waits for.
	Within time.Duration
	// Match looks at what spec.match of a policy becomes, a line each, which begins with the field: refused keeps the API server from
	// asking the policy, unserved is what the cluster does not have. Nil: nobody looks.
	Match func(ctx context.Context, object *v1alpha1.RegoPolicy) (refused, unserved []string)
	// Hint is added to errors: what to do if nothing can be found out.
	Hint string
	// Registry takes the metrics.
	Registry prometheus.Registerer
}

// Runner compiles and tests policies, a few at a time. It answers the test runs that policies ask for.
type Runner struct {
	Options
	metrics    *metrics
	slots      chan struct{}
	background chan struct{} // of those that no request waits for there is one at a time
	found      *lru.Cache    // findings, by the digest of what was run
}

// New makes a runner.
func New(o Options) *Runner {
	return &Runner{
		Options: o, metrics: newMetrics(o.Registry), slots: make(chan struct{}, atOnce), background: make(chan struct{}, 1),
		found: lru.New(mostCached),
	}
}

// RunTests answers a policy's question what would become of a document: a RegoPolicy, or {"deleted": name} for one that goes.
// Of a RegoPolicy without modules only what it matches is looked at. The answer is a [Finding].
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
	wanted, deleted, err := wantedIn(document)
	if err != nil {
		return nil, fmt.Errorf("reading the RegoPolicy to rehearse: %w", err)
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
		finding = r.matched(wanted)
	} else {
		run := Run{World: world, Deleted: deleted, Patchable: r.Patchable}
		if deleted == "" {
			run.Candidate = wanted.DeepCopy() // of which a test run leaves what it needs
		}
		finding, err = r.lookUpOrRun(ctx, &run, false)
	}
	if err != nil {
		return nil, err
	}
	return r.with(r.registered(ctx, wanted, finding), <-ungranted), nil
}

// wantedIn gives the RegoPolicy that a document is, or the name of the one that goes by it.
func wantedIn(document engine.Value) (*v1alpha1.RegoPolicy, string, error) {
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

// registered adds to a finding whether the API server would ask the policy.
func (r *Runner) registered(ctx context.Context, object *v1alpha1.RegoPolicy, found *Finding) *Finding {
	if r.Match == nil || object.Spec.Match == nil {
		return found
	}
	if found.Has(v1alpha1.ReasonCompileFailed) || found.Has(v1alpha1.ReasonLimitExceeded) {
		object = object.DeepCopy()
		object.Spec.Modules = nil // which is not to be parsed in this process either, where nothing bounds it
	}
	f := *found // which is cached as it is
	refused, unserved := r.Match(ctx, object)
	f.Problems = slices.Clone(f.Problems)
	for _, why := range refused {
		f.Problems = append(f.Problems, Problem{Kind: v1alpha1.ReasonNotRegistrable, File: object.Name, Message: why})
	}
	f.Unserved = unserved
	f.bound()
	return &f
}

// matched looks at what a policy matches, for which nothing has to be compiled.
func (r *Runner) matched(object *v1alpha1.RegoPolicy) *Finding {
	f := &Finding{Took: "0s"}
	if err := catalog.CheckMatch(&object.Spec); err != nil {
		f.Problems = problems(object.Name, v1alpha1.ReasonCompileFailed, err)
	}
	if catalog.Patches(object) {
		f.Unpatchable = catalog.Unpatchable(object.Spec.Match, r.Patchable)
	}
	f.bound()
	return f
}

// Run carries out a test run that no request waits for. One runs at a time, so that requests find room.
func (r *Runner) Run(ctx context.Context, run *Run) (*Finding, error) {
	select {
	case r.background <- struct{}{}:
		defer func() { <-r.background }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errOverdue)
	defer cancel()
	return r.lookUpOrRun(ctx, run, true)
}

// lookUpOrRun gives what is known, or has it found out until the deadline of the context. A limit that was broken is cached only if there was
// time enough: how much there is for a request differs from one moment to the next.
func (r *Runner) lookUpOrRun(ctx context.Context, run *Run, unhurried bool) (*Finding, error) {
	name := run.trim()
	run.Others = r.others(run)
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
	if err == nil && (unhurried || !finding.Has(v1alpha1.ReasonLimitExceeded)) {
		r.found.Add(key, finding)
	}
	return finding, err
}

// others is what policies need that a test run leaves out.
func (r *Runner) others(run *Run) (sum int64) {
	if r.Weights == nil || run.Candidate == nil {
		return 0
	}
	for name, weight := range r.Weights() {
		known := name == run.Candidate.Name || slices.ContainsFunc(run.World, func(o v1alpha1.RegoPolicy) bool { return o.Name == name })
		if !known {
			sum += weight
		}
	}
	return sum
}

var errBusy = errors.New("too many RegoPolicies are being rehearsed at the same time; try again")

// start waits until there is room, and has a child carry it out.
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
	if within < enough {
		return nil, errBusy
	}
	return r.Process.run(ctx, text, name, within)
}

// trim leaves of a test run what it depends on, so that what is the same is known again: a policy is tested with the libraries, a
// library with everything. It gives the name of the policy that it is about.
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

// trimmed leaves out how a policy is enforced, and all metadata but what its place among others depends on.
func trimmed(o *v1alpha1.RegoPolicy, tests bool) v1alpha1.RegoPolicy {
	spec := o.Spec
	spec.Mode, spec.OnError, spec.Override, spec.BackgroundAudit, spec.TimeoutMilliseconds = "", "", "", "", 0
	if !tests {
		spec.Tests = nil
	}
	return v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: o.Name, CreationTimestamp: o.CreationTimestamp}, Spec: spec}
}
