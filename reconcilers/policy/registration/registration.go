package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/fairqueue"
)

const (
	// minPeriod is the shortest wait for replicas, and the wait after a conflict with another client.
	minPeriod = 200 * time.Millisecond
	// servedPeriod is the time between checks whether the cluster serves a missing resource.
	servedPeriod = 30 * time.Second
	// maxPeriod is the longest time between checks of replicas that serve other policies.
	maxPeriod = 5 * time.Second
	// firstRetry and lastRetry bound the wait after an error.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// Catalog has the active policies of this replica.
type Catalog interface {
	// Active returns them, and a hash by which replicas compare them. The hash is empty until policies are loaded.
	Active() (hash string, policies []Policy)
}

// Replicas are the processes that serve the webhooks.
type Replicas interface {
	// Policies returns the hash that each live replica has reported, by process; "" for a replica that has not reported any.
	Policies(ctx context.Context) (map[string]string, error)
}

// Finding is the state of a policy's registration.
type Finding struct {
	// Generation of the RegoPolicy.
	Generation int64
	// Reason of the condition Registered; empty if there is nothing to register.
	Reason v1alpha1.ConditionReason
	// Message for people.
	Message string
}

// Reconciler maintains the entries.
type Reconciler struct {
	// Client writes, and reads RegoPolicies from its cache. Live reads without a cache.
	Client client.Client
	Live   client.Reader
	// Namespace is the namespace of Sallyport.
	Namespace string
	// Configuration is the name of both configurations with the entries, Chart the name of the two with the chart's own webhooks.
	Configuration, Chart string
	// ValidatePath and MutatePath are the paths of the webhooks, to which the name of a policy is appended.
	ValidatePath, MutatePath string
	// NeedsBundle is set if API servers verify Sallyport's certificate by a caBundle: without one nothing is registered.
	NeedsBundle bool
	Catalog     Catalog
	// Served returns the resources that the cluster serves. If nil, it serves all.
	Served func() (*Served, error)
	// Changed receives an event whenever the policies of the catalog may have changed.
	Changed  <-chan event.GenericEvent
	Replicas Replicas
	// Notify is called with the name of each policy whose finding has changed.
	Notify func(policy string)
	// Events receives an event when the gate is opened or closed. It may be nil.
	Events events.EventRecorder
	Now    func() time.Time

	lastOpening *Opening  // the opening at the last pass
	awaited     string    // the hash that not every replica has reported
	since       time.Time // when that wait began
	// written has the entries as this process wrote them, by kind and name.
	written map[string]*written

	mu       sync.Mutex
	findings map[string]Finding // nil until the first pass
}

// Finding returns the state of a policy's registration, and false if it is unknown.
func (r *Reconciler) Finding(policy string) (Finding, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, known := r.findings[policy]
	return f, known
}

// pass is one evaluation of all policies, replicas and configurations.
type pass struct {
	*Reconciler
	sides    []*side
	policies []Policy
	// there has the creation time of each RegoPolicy, by name.
	there  map[string]time.Time
	served *Served
	// open is set while the gate is open.
	open *Opening
	// behind are the replicas that do not serve these policies yet.
	behind []string
	// contended is set if an entry is left to another client for some time.
	contended bool
	// reports are by policy name.
	reports map[string]*report
}

// report collects the results for one policy.
type report struct {
	generation int64
	asked      []string // registered targets, as text
	refused    []string // targets that are never registered, with the reason
	lacking    []string // resources that the cluster does not serve
	waiting    bool     // for replicas
	failed     []string
	narrowed   []string // what other clients have added to namespaceSelectors
	broken     bool     // and therefore not registered
}

// Reconcile updates the entries to match the policies.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if r.written == nil {
		r.written = map[string]*written{}
	}
	there, err := r.there(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	reg := &pass{Reconciler: r, sides: r.newSides(), there: there, reports: map[string]*report{}}
	hash, policies := r.Catalog.Active()
	reg.policies = policies
	var unknown error
	if hash != "" {
		reg.behind, unknown = r.lagging(ctx, hash)
	}
	for _, s := range reg.sides {
		if err := r.read(ctx, s); err != nil {
			return reconcile.Result{}, err
		}
	}
	reg.opening()
	var undiscovered error
	if reg.served, undiscovered = r.discover(); undiscovered != nil {
		log.FromContext(ctx).Error(undiscovered, "API discovery failed; cannot tell which matched resources are unserved")
	}
	errs := []error{unknown}
	for _, s := range reg.sides {
		err := reg.update(ctx, s, hash != "")
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // written by another client since it was read
			return reconcile.Result{RequeueAfter: minPeriod}, nil
		}
		errs = append(errs, err)
	}
	reg.recordOpening()
	if hash != "" {
		r.publish(reg.findings())
	}
	wait := reg.wait(hash)
	if reg.open != nil {
		left := reg.open.Until.Sub(r.Now()) + time.Second
		wait = min(cmp.Or(wait, left), left)
	}
	return reconcile.Result{RequeueAfter: wait}, errors.Join(errs...)
}

// discover returns the resources that the cluster serves, nil if they are unknown.
func (r *Reconciler) discover() (*Served, error) {
	if r.Served == nil {
		return nil, nil
	}
	return r.Served()
}

// there returns the creation time of each RegoPolicy, by name.
func (r *Reconciler) there(ctx context.Context) (map[string]time.Time, error) {
	list := &v1alpha1.RegoPolicyList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing RegoPolicies: %w", err)
	}
	names := map[string]time.Time{}
	for i := range list.Items {
		names[list.Items[i].Name] = list.Items[i].CreationTimestamp.Time
	}
	return names, nil
}

// Behind returns the names of the live replicas whose policies differ from this replica's.
func (r *Reconciler) Behind(ctx context.Context) ([]string, error) {
	hash, _ := r.Catalog.Active()
	if hash == "" {
		return []string{"the leader"}, nil
	}
	return r.lagging(ctx, hash)
}

// lagging returns the names of the replicas that have not reported this hash. If the reports cannot be read, it returns a text instead.
func (r *Reconciler) lagging(ctx context.Context, hash string) ([]string, error) {
	all, err := r.Replicas.Policies(ctx)
	if err != nil {
		return []string{"unknown, because the replicas could not be asked"}, fmt.Errorf("asking which policies the replicas serve: %w", err)
	}
	var behind []string
	for process, reported := range all {
		if reported != hash {
			name, _, _ := strings.Cut(process, "_")
			behind = append(behind, name)
		}
	}
	slices.Sort(behind)
	return behind, nil
}

// update writes the entries of one side. If no policies are loaded (known is false), it only removes the entries of deleted policies.
func (reg *pass) update(ctx context.Context, s *side, known bool) error {
	next := map[string]*entry{}
	if !known {
		for name, e := range s.have {
			if _, there := reg.there[e.policy]; there {
				next[name] = e
			}
		}
	}
	for i := range reg.policies {
		if _, there := reg.there[reg.policies[i].Name]; known && there {
			for _, e := range reg.next(s, &reg.policies[i]) {
				next[e.Name] = e
			}
		}
	}
	fail := func(e *entry, why string) { reg.report(e.policy).failed = append(reg.report(e.policy).failed, why) }
	if s.own == nil {
		for _, e := range next {
			fail(e, fmt.Sprintf("%s %s does not exist; run helm upgrade to create it again", s.kind(), reg.Configuration))
		}
		return nil
	}
	failed, err := reg.put(ctx, s, next)
	for e, why := range failed {
		fail(e, why)
	}
	if err == nil {
		reg.log(ctx, s, next)
	}
	return err
}

func (reg *pass) next(s *side, p *Policy) (all []*entry) {
	report := reg.report(p.Name)
	report.generation = p.Generation
	targets, refused := reg.targets(s, p)
	report.refused = unique(slices.Concat(p.neverEvaluated(reg.sides), report.refused, refused))
	report.lacking = reg.served.Lacking(&p.Match)
	if len(targets) == 0 {
		return nil
	}
	switch {
	case p.Broken && len(reg.of(p.Name)) == 0:
		report.broken = true
		return nil
	case s.sample == nil:
		report.failed = append(report.failed, s.why)
		return s.of(p.Name)
	}
	want := reg.want(s, p, targets)
	for i := range targets {
		report.asked = append(report.asked, targets[i].String())
	}
	report.asked = unique(report.asked)
	if !p.Broken && len(reg.behind) == 0 || len(want) == 0 { // none, if another client deletes it each time: see share
		return want
	}
	all = reg.kept(s, p, want[0])
	report.waiting = report.waiting || !p.Broken && !slices.EqualFunc(all, want, (*entry).same)
	return all
}

// kept returns the current entries of a policy, updated only where that cannot match or deny more requests: client configuration, timeout,
// and failurePolicy Ignore. If a broken policy is registered only on the other side, it returns copies of those entries.
func (reg *pass) kept(s *side, p *Policy, want *entry) (all []*entry) {
	have := s.of(p.Name)
	if p.Broken && len(have) == 0 {
		have = reg.of(p.Name)
	}
	for _, e := range have {
		kept := *e
		kept.ClientConfig, kept.TimeoutSeconds = want.ClientConfig, want.TimeoutSeconds
		if !p.DeniesUnasked || reg.ignores(s, e) {
			kept.FailurePolicy = ptr.To(ignore)
		}
		all = append(all, &kept)
	}
	return all
}

// ignores reports whether an entry needs failurePolicy Ignore regardless of its policy.
func (reg *pass) ignores(s *side, e *entry) bool {
	return s.ignores() || reg.open != nil && !aboutOwn(e.Rules)
}

// targets returns what to register on one side, and why the rest is never registered.
func (reg *pass) targets(s *side, p *Policy) (found []target, refused []string) {
	if !s.applies(p) {
		return nil, nil
	}
	if s.mutating {
		return p.targetsBut(s.covered, s.possible, p.MayNotPatch)
	}
	return p.targets(s.covered, s.possible)
}

// want returns the entries of a policy once every replica serves it.
func (reg *pass) want(s *side, p *Policy, targets []target) []*entry {
	all := newEntries(p, targets, s.mutating, s.client(p.Name), reg.Namespace)
	for _, e := range all {
		if reg.ignores(s, e) {
			e.FailurePolicy = ptr.To(ignore)
		}
	}
	return reg.share(s, all)
}

// of returns the entries of a policy on the first side that has any.
func (reg *pass) of(policy string) []*entry {
	for _, s := range reg.sides {
		if s.has(policy) {
			return s.of(policy)
		}
	}
	return nil
}

func (reg *pass) report(policy string) *report {
	if reg.reports[policy] == nil {
		reg.reports[policy] = &report{}
	}
	return reg.reports[policy]
}

// log logs the entries that were added, changed or removed.
func (reg *pass) log(ctx context.Context, s *side, next map[string]*entry) {
	logger := log.FromContext(ctx).WithValues("configuration", reg.Configuration, "kind", s.kind())
	for name, e := range next {
		if !e.same(s.have[name]) {
			logger.Info("registered a policy", "policy", e.policy, "webhook", name, "about", reg.report(e.policy).asked, "failurePolicy", *e.FailurePolicy)
		}
	}
	for name, e := range s.have {
		if next[name] == nil {
			logger.Info("unregistered a policy", "policy", e.policy, "webhook", name)
		}
	}
}

// wait returns when to reconcile again if no watched object changes, 0 for never. Reports of replicas are not watched.
func (reg *pass) wait(hash string) time.Duration {
	waiting, lacking := false, false
	for _, r := range reg.reports {
		waiting, lacking = waiting || r.waiting, lacking || len(r.lacking) > 0
	}
	now := reg.Now()
	switch {
	case waiting && (reg.awaited != hash || reg.since.After(now)):
		reg.awaited, reg.since = hash, now
		return minPeriod
	case waiting:
		return min(max(now.Sub(reg.since)/4, minPeriod), maxPeriod)
	}
	reg.awaited = ""
	switch {
	case reg.contended:
		return fairqueue.ContentionPeriod
	case lacking:
		return servedPeriod
	}
	return 0
}

// publish stores the findings, and calls Notify for each that has changed.
func (r *Reconciler) publish(findings map[string]Finding) {
	r.mu.Lock()
	before := r.findings
	r.findings = findings
	r.mu.Unlock()
	for name, f := range findings {
		if was, known := before[name]; !known || was != f {
			r.Notify(name)
		}
	}
}
