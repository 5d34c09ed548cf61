package trial

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
)

const (
	// atOnce is how many trials run at once; more wait.
	atOnce = 2
	// remembered is how many findings are kept: a dry run and the write after it are one trial.
	remembered = 64
	// enough is the least time that a trial is begun with, and margin what is left of a deadline for what comes after it.
	enough, margin = 300 * time.Millisecond, 250 * time.Millisecond
	// patience is how long a trial may take that no request waits for.
	patience = 30 * time.Second
)

// Options of trials.
type Options struct {
	// World gives all RegoPolicies as they are.
	World func(context.Context) ([]v1alpha1.RegoPolicy, error)
	// Weights are estimates of the memory that policies need, by name, in bytes; nil: nobody knows.
	Weights func() map[string]int64
	// Patchable is what policies may patch.
	Patchable grants.Patchable
	// Ungranted tells which rights Sallyport lacks to read something, as far as that can be found out in time; nil: nobody knows.
	Ungranted func(context.Context, []engine.Read) []catalog.Grant
	// Process tries them.
	Process Process
	// Within is how long a trial may take that a request waits for.
	Within time.Duration
	// Match looks at what spec.match of a policy becomes, a line each, which begins with the field: refused keeps the API server from
	// asking the policy, unserved is what the cluster does not have. Nil: nobody looks.
	Match func(ctx context.Context, object *v1alpha1.RegoPolicy) (refused, unserved []string)
	// Hint is added to errors: what to do if nothing can be found out.
	Hint string
	// Registry takes the metrics.
	Registry prometheus.Registerer
}

// Trials tries policies, a few at a time. It answers the rehearsals that policies ask for.
type Trials struct {
	Options
	metrics    *metrics
	slots      chan struct{}
	background chan struct{} // of those that no request waits for there is one at a time

	mu    sync.Mutex
	known map[[sha256.Size]byte]*Finding
	order [][sha256.Size]byte // the oldest first
}

// New makes trials.
func New(o Options) *Trials {
	return &Trials{
		Options: o, metrics: newMetrics(o.Registry), slots: make(chan struct{}, atOnce), background: make(chan struct{}, 1),
		known: map[[sha256.Size]byte]*Finding{},
	}
}

// Rehearse answers a policy's question what would become of a document: a RegoPolicy, or {"deleted": name} for one that goes.
// Of a RegoPolicy without modules only what it matches is looked at. The answer is a [Finding].
func (t *Trials) Rehearse(ctx context.Context, document engine.Value) (engine.Value, error) {
	finding, err := t.rehearse(ctx, document)
	if err != nil {
		if t.Hint != "" {
			err = fmt.Errorf("%w; %s", err, t.Hint)
		}
		return engine.Value{}, err
	}
	text, err := json.Marshal(finding)
	if err != nil {
		return engine.Value{}, err
	}
	return engine.ParseValue(text)
}

func (t *Trials) rehearse(ctx context.Context, document engine.Value) (*Finding, error) {
	within := t.Within
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)-margin)
	}
	text, err := document.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var wanted struct {
		v1alpha1.RegoPolicy
		Deleted string `json:"deleted"`
	}
	if err := json.Unmarshal(text, &wanted); err != nil {
		return nil, fmt.Errorf("reading the RegoPolicy that is to be rehearsed: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errOverdue)
	defer cancel()
	world, err := t.World(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the RegoPolicies that there are: %w", err)
	}
	onlyMatched := wanted.Deleted == "" && len(wanted.Spec.Modules) == 0
	if onlyMatched {
		for i := range world {
			if o := &world[i]; o.Name == wanted.Name {
				wanted.Spec.Package, wanted.Spec.Modules = o.Spec.Package, o.Spec.Modules
			}
		}
	}
	ungranted := t.ungranted(ctx, &wanted.RegoPolicy)
	var finding *Finding
	if onlyMatched {
		finding = t.matched(&wanted.RegoPolicy)
	} else {
		finding, err = t.find(ctx, world, &wanted.RegoPolicy, wanted.Deleted)
	}
	if err != nil {
		return nil, err
	}
	return t.with(t.registered(ctx, &wanted.RegoPolicy, finding), <-ungranted), nil
}

// find tries a document.
func (t *Trials) find(ctx context.Context, world []v1alpha1.RegoPolicy, wanted *v1alpha1.RegoPolicy, deleted string) (*Finding, error) {
	tried := Trial{World: world, Deleted: deleted, Patchable: t.Patchable}
	if deleted == "" {
		tried.Candidate = wanted.DeepCopy() // of which a trial leaves what it needs
	}
	return t.try(ctx, &tried, false)
}

// registered adds to a finding whether the API server would ask the policy.
func (t *Trials) registered(ctx context.Context, object *v1alpha1.RegoPolicy, found *Finding) *Finding {
	if t.Match == nil || object.Spec.Match == nil {
		return found
	}
	if found.Has(string(catalog.CompileFailed)) || found.Has(KindLimitExceeded) {
		object = object.DeepCopy()
		object.Spec.Modules = nil // which is not to be parsed in this process either, where nothing bounds it
	}
	f := *found // which is remembered as it is
	refused, unserved := t.Match(ctx, object)
	f.Problems = slices.Clone(f.Problems)
	for _, why := range refused {
		f.Problems = append(f.Problems, Problem{Kind: KindNotRegistrable, File: object.Name, Message: why})
	}
	f.Unserved = unserved
	f.bound()
	return &f
}

// matched looks at what a policy matches, for which nothing has to be compiled.
func (t *Trials) matched(object *v1alpha1.RegoPolicy) *Finding {
	f := &Finding{Took: "0s"}
	if err := catalog.CheckMatch(&object.Spec); err != nil {
		f.Problems = problems(object.Name, string(catalog.CompileFailed), err)
	}
	if catalog.Patches(object) {
		f.Unpatchable = catalog.Unpatchable(object.Spec.Match, t.Patchable)
	}
	f.bound()
	return f
}

// Try tries something that no request waits for. One is tried at a time, so that requests find room.
func (t *Trials) Try(ctx context.Context, tried *Trial) (*Finding, error) {
	select {
	case t.background <- struct{}{}:
		defer func() { <-t.background }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errOverdue)
	defer cancel()
	return t.try(ctx, tried, true)
}

// try gives what is known, or tries until the deadline of the context. A limit that was broken is remembered only if there was
// time enough: how much there is for a request differs from one moment to the next.
func (t *Trials) try(ctx context.Context, tried *Trial, unhurried bool) (*Finding, error) {
	name := tried.trim()
	tried.Others = t.others(tried)
	text, err := json.Marshal(tried)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(text)
	if finding := t.recall(key); finding != nil {
		t.metrics.rehearsals.WithLabelValues(resultRemembered).Inc()
		return finding, nil
	}
	began := time.Now()
	finding, err := t.run(ctx, text, name)
	t.metrics.count(finding, err, time.Since(began))
	if err == nil && (unhurried || !finding.Has(KindLimitExceeded)) {
		t.remember(key, finding)
	}
	return finding, err
}

// others is what policies need that a trial leaves out.
func (t *Trials) others(tried *Trial) (sum int64) {
	if t.Weights == nil || tried.Candidate == nil {
		return 0
	}
	for name, weight := range t.Weights() {
		known := name == tried.Candidate.Name || slices.ContainsFunc(tried.World, func(o v1alpha1.RegoPolicy) bool { return o.Name == name })
		if !known {
			sum += weight
		}
	}
	return sum
}

var errBusy = errors.New("too many RegoPolicies are being rehearsed at the same time; try again")

// run waits until there is room, and has a child try.
func (t *Trials) run(ctx context.Context, text []byte, name string) (*Finding, error) {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
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
	return t.Process.run(ctx, text, name, within)
}

func (t *Trials) recall(key [sha256.Size]byte) *Finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[key]
}

func (t *Trials) remember(key [sha256.Size]byte, f *Finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.known[key]; !known {
		t.order = append(t.order, key)
	}
	t.known[key] = f
	if len(t.order) > remembered {
		delete(t.known, t.order[0])
		t.order = slices.Delete(t.order, 0, 1)
	}
}

// trim leaves of a trial what it depends on, so that what is the same is known again: a policy is tried with the libraries, a
// library with everything. It gives the name of the policy that it is about.
func (t *Trial) trim() string {
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
