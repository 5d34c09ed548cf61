package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

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
)

const (
	// soon is when to look again at what somebody else was faster with.
	soon = 200 * time.Millisecond
	// settle is how long API servers may take to learn of an entry.
	settle = 2 * time.Second
	// hopeful is how long is waited between two looks at whether the cluster has got what a policy is about.
	hopeful = 30 * time.Second
	// late is the longest that is waited between two looks at replicas that do not follow.
	late = 5 * time.Second
	// firstRetry and lastRetry bound the wait after an error.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// Catalog knows the policies that decide in this replica.
type Catalog interface {
	// Active gives them, and a hash by which replicas compare them; an empty one as long as there are none.
	Active() (hash string, policies []Policy)
}

// Replicas are the processes that serve the webhooks.
type Replicas interface {
	// Policies gives the hash that each live replica has reported, by a name of its process; empty for one that has reported none.
	Policies(ctx context.Context) (map[string]string, error)
}

// Finding is what became of a policy's registration.
type Finding struct {
	// Generation of the RegoPolicy that it is about.
	Generation int64
	// Reason of the condition Registered; empty if there is nothing to register.
	Reason v1alpha1.ConditionReason
	// Message for people.
	Message string
}

// Reconciler keeps the entries.
type Reconciler struct {
	// Client writes, and reads RegoPolicies from its cache. Live reads past every cache.
	Client client.Client
	Live   client.Reader
	// Namespace is the one that Sallyport is installed in.
	Namespace string
	// Configuration is the name of both configurations with the entries, Chart that of the chart's own, beside them.
	Configuration, Chart string
	// ValidatePath and MutatePath are where policies are asked; the name of one follows.
	ValidatePath, MutatePath string
	// NeedsBundle tells that Sallyport's certificate is trusted by a caBundle, so that nothing can be registered without one.
	NeedsBundle bool
	Catalog     Catalog
	// Served tells which resources the cluster has; nil takes it to have all.
	Served func() (*Served, error)
	// Changed receives an event whenever the policies of the catalog may have changed.
	Changed  <-chan event.GenericEvent
	Replicas Replicas
	// Found is called with the name of each policy whose finding is another than before.
	Found func(policy string)
	// Events receives when the gate is opened and closed; nil receives nothing.
	Events events.EventRecorder
	// Now is the clock.
	Now func() time.Time

	told    *Opening  // the opening of the last look
	awaited string    // the hash that replicas are waited for to report
	since   time.Time // when that began
	// changing are the policies that change objects, with when that was first seen.
	changing map[string]time.Time

	mu       sync.Mutex
	findings map[string]Finding // nil until the first look
}

// Finding tells what became of a policy, and false if that is not known.
func (r *Reconciler) Finding(policy string) (Finding, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, known := r.findings[policy]
	return f, known
}

// look is one look at everything.
type look struct {
	*Reconciler
	sides    []*side
	policies []Policy
	// there has the names of all RegoPolicies, with when they were created.
	there  map[string]time.Time
	served *Served
	// open is set while the gate is open.
	open *Opening
	// behind are the replicas that do not decide by these policies yet.
	behind []string
	// reports are by the policy's name.
	reports map[string]*report
}

// report is what is found out about one policy.
type report struct {
	generation int64
	asked      []string // in words
	refused    []string // what is never registered
	lacking    []string // what the cluster does not have
	waiting    bool     // for replicas
	settling   bool     // for API servers that are to change objects first
	failed     []string
	broken     bool // and not registered for that
}

// Reconcile puts the entries in step with the policies.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if r.changing == nil {
		r.changing = map[string]time.Time{}
	}
	there, err := r.there(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	l := &look{Reconciler: r, sides: r.newSides(), there: there, reports: map[string]*report{}}
	hash, policies := r.Catalog.Active()
	l.policies = policies
	var unknown error
	if hash != "" {
		l.behind, unknown = r.lagging(ctx, hash)
	}
	for _, s := range l.sides {
		if err := r.read(ctx, s); err != nil {
			return reconcile.Result{}, err
		}
	}
	l.opening()
	var undiscovered error
	if l.served, undiscovered = r.discover(); undiscovered != nil {
		log.FromContext(ctx).Error(undiscovered, "API discovery failed; cannot tell which matched resources are unserved")
	}
	errs := []error{unknown}
	for _, s := range l.sides {
		err := l.settle(ctx, s, hash != "")
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // somebody was faster
			return reconcile.Result{RequeueAfter: soon}, nil
		}
		errs = append(errs, err)
	}
	l.tellOpening()
	maps.DeleteFunc(r.changing, func(policy string, _ time.Time) bool { return !l.mutating().has(policy) })
	if hash != "" {
		r.publish(l.findings())
	}
	wait := l.wait(hash)
	if l.open != nil {
		left := l.open.Until.Sub(r.Now()) + time.Second
		wait = min(cmp.Or(wait, left), left)
	}
	return reconcile.Result{RequeueAfter: wait}, errors.Join(errs...)
}

// discover finds out what the cluster has, nil if it is not to be known.
func (r *Reconciler) discover() (*Served, error) {
	if r.Served == nil {
		return nil, nil
	}
	return r.Served()
}

// there gives the names of all RegoPolicies, with when they were created.
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

// Behind returns the names of the live replicas that serve other policies than this one.
func (r *Reconciler) Behind(ctx context.Context) ([]string, error) {
	hash, _ := r.Catalog.Active()
	if hash == "" {
		return []string{"the leader"}, nil
	}
	return r.lagging(ctx, hash)
}

// lagging names the replicas that do not decide by the policies with that hash. If they cannot be asked, nobody knows which do.
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

// settle writes one side. Without policies that decide nothing is known but which there are.
func (l *look) settle(ctx context.Context, s *side, known bool) error {
	next := map[string]*entry{}
	if !known {
		for name, e := range s.have {
			if _, there := l.there[e.policy]; there {
				next[name] = e
			}
		}
	}
	for i := range l.policies {
		if _, there := l.there[l.policies[i].Name]; known && there {
			for _, e := range l.next(s, &l.policies[i]) {
				next[e.Name] = e
			}
		}
	}
	fail := func(e *entry, why string) { l.report(e.policy).failed = append(l.report(e.policy).failed, why) }
	if s.own == nil {
		for _, e := range next {
			fail(e, fmt.Sprintf("%s %s does not exist; run helm upgrade to create it again", s.kind(), l.Configuration))
		}
		return nil
	}
	for policy, why := range l.fit(s, next) {
		l.report(policy).failed = append(l.report(policy).failed, why)
	}
	failed, err := l.put(ctx, s, next)
	for e, why := range failed {
		fail(e, why)
	}
	if err == nil {
		l.log(ctx, s, next)
	}
	return err
}

// next gives the entries that a policy is to have now.
func (l *look) next(s *side, p *Policy) (all []*entry) {
	report := l.report(p.Name)
	report.generation = p.Generation
	targets, refused := l.targets(s, p)
	report.refused = unique(slices.Concat(p.unheard(l.sides), report.refused, refused))
	if len(p.Matches) > 0 {
		report.lacking = l.served.Lacking(&p.Matches[0])
	}
	if len(targets) == 0 {
		return nil
	}
	switch {
	case p.Broken && len(l.of(p.Name)) == 0:
		report.broken = true
		return nil
	case s.sample == nil:
		report.failed = append(report.failed, s.why)
		return s.of(p.Name)
	}
	want := l.want(s, p, targets)
	for i := range targets {
		report.asked = append(report.asked, targets[i].String())
	}
	report.asked = unique(report.asked)
	late, settling := len(l.behind) > 0, !s.mutating && !l.changes(p)
	if !p.Broken && !late && !settling {
		return want
	}
	all = l.kept(s, p, want[0])
	if !p.Broken && !slices.EqualFunc(all, want, (*entry).same) {
		report.waiting, report.settling = report.waiting || late, report.settling || settling
	}
	return all
}

// kept returns the entries of a policy as they are, except for what cannot make the API server ask or deny more: how it reaches Sallyport,
// and that it ignores failures. Of a broken policy that is registered only on the other side, they are those of that side.
func (l *look) kept(s *side, p *Policy, want *entry) (all []*entry) {
	have := s.of(p.Name)
	if p.Broken && len(have) == 0 {
		have = l.of(p.Name)
	}
	for _, e := range have {
		kept := *e
		kept.ClientConfig, kept.TimeoutSeconds = want.ClientConfig, want.TimeoutSeconds
		if !p.Refuses || l.ignores(s, e) {
			kept.FailurePolicy = ptr.To(ignore)
		}
		all = append(all, &kept)
	}
	return all
}

// ignores reports whether the API server has to ignore failures of an entry, whatever its policy says.
func (l *look) ignores(s *side, e *entry) bool {
	return s.ignores() || l.open != nil && !aboutOwn(e.Rules)
}

// targets are what is to be asked about on one side.
func (l *look) targets(s *side, p *Policy) (found []target, refused []string) {
	if !s.speaks(p) {
		return nil, nil
	}
	if s.mutating {
		return p.targetsBut(s.covered, s.possible, p.MayNotPatch)
	}
	return p.targets(s.covered, s.possible)
}

// want are the entries of a policy when nothing stands in its way.
func (l *look) want(s *side, p *Policy, targets []target) []*entry {
	all := newEntries(p, targets, s.mutating, s.client(p.Name), l.Namespace)
	for _, e := range all {
		if l.ignores(s, e) {
			e.FailurePolicy = ptr.To(ignore)
		}
	}
	return all
}

// changes reports whether the API servers have a policy change objects, if that is its business: it may refuse those that it has not
// changed, and must not be asked about them before.
func (l *look) changes(p *Policy) bool {
	s := l.mutating()
	targets, _ := l.targets(s, p)
	if len(targets) == 0 {
		return true
	}
	if s.sample == nil || slices.ContainsFunc(l.want(s, p, targets), func(e *entry) bool { return !e.same(s.have[e.Name]) }) {
		delete(l.changing, p.Name)
		return false
	}
	if _, known := l.changing[p.Name]; !known {
		l.changing[p.Name] = l.Now()
	}
	return l.Now().Sub(l.changing[p.Name]) >= settle
}

// mutating is the side on which objects are changed.
func (l *look) mutating() *side {
	return l.sides[slices.IndexFunc(l.sides, func(s *side) bool { return s.mutating })]
}

// of returns the entries of a policy, on whichever side.
func (l *look) of(policy string) []*entry {
	for _, s := range l.sides {
		if s.has(policy) {
			return s.of(policy)
		}
	}
	return nil
}

func (l *look) report(policy string) *report {
	if l.reports[policy] == nil {
		l.reports[policy] = &report{}
	}
	return l.reports[policy]
}

// log tells what has changed.
func (l *look) log(ctx context.Context, s *side, next map[string]*entry) {
	logger := log.FromContext(ctx).WithValues("configuration", l.Configuration, "kind", s.kind())
	for name, e := range next {
		if !e.same(s.have[name]) {
			logger.Info("registered a policy", "policy", e.policy, "webhook", name, "about", l.report(e.policy).asked, "failurePolicy", *e.FailurePolicy)
		}
	}
	for name, e := range s.have {
		if next[name] == nil {
			logger.Info("unregistered a policy", "policy", e.policy, "webhook", name)
		}
	}
}

// wait is how long nobody has to look again, if nothing changes that is watched. What replicas report is not.
func (l *look) wait(hash string) time.Duration {
	waiting, settling, lacking := false, false, false
	for _, r := range l.reports {
		waiting, settling, lacking = waiting || r.waiting, settling || r.settling && len(r.failed) == 0, lacking || len(r.lacking) > 0
	}
	now := l.Now()
	switch {
	case waiting && (l.awaited != hash || l.since.After(now)):
		l.awaited, l.since = hash, now
		return soon
	case waiting:
		return min(max(now.Sub(l.since)/4, soon), late)
	}
	l.awaited = ""
	switch {
	case settling:
		return settle
	case lacking:
		return hopeful
	}
	return 0
}

// publish keeps the findings, and tells whose changed.
func (r *Reconciler) publish(findings map[string]Finding) {
	r.mu.Lock()
	before := r.findings
	r.findings = findings
	r.mu.Unlock()
	for name, f := range findings {
		if was, known := before[name]; !known || was != f {
			r.Found(name)
		}
	}
}
