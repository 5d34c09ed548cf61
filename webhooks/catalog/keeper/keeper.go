package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
)

// PolicyLabel is the label of ControllerRevisions that store a good revision of the policy that it names.
const PolicyLabel = "sallyport.dev/policy"

// Decider evaluates the policies.
type Decider interface {
	// Swap replaces the set of policies for later requests.
	Swap(set *catalog.Set)
}

// Facts answers the queries of policies.
type Facts interface {
	// Watch starts to watch the reads of a policy and returns what cannot be read yet. Use sets the reads of active policies and
	// all wanted reads. Synced returns an error until the reads of active policies can be answered. Notify sets the function to
	// call when any of this may have changed.
	Watch(ctx context.Context, policy string, reads []engine.Read) []facts.Lack
	Use(used, wanted []engine.Read)
	Synced() error
	Notify(changed func())
}

// Keeper watches the RegoPolicies of the cluster and gives them to the gate.
type Keeper struct {
	release grants.Release
	gate    Decider
	facts   Facts
	metrics *metrics
	// Replaces reports whether another live replica has another version. Only then does a policy that this version cannot use make
	// the replica unready; if nil, always. Set it before the start.
	Replaces func(context.Context) bool
	// Ships returns the names of the policies of the release. The first set waits for them, but not for ever: a policy may be refused, and a
	// leader of the release before may not know it. If nil, it waits for any policy. Set it before the start.
	Ships func(context.Context) ([]string, error)

	catalog     catalog.Catalog
	cached      client.Reader
	ctx         context.Context                 // the controller's context
	wantedReads []engine.Read                   // reads of the current build
	decoded     map[types.UID]*catalog.Revision // the contents of ControllerRevisions, which are immutable; nil if unusable

	mu          sync.RWMutex
	states      map[string]catalog.State
	unusable    error // policies that were good before and cannot be used in this version
	hash        string
	swapped     bool            // the gate has a set
	missing     []string        // the policies of the release that the first set waits for
	began       time.Time       // when it began to wait for them
	set         *catalog.Set    // the gate's set
	setStates   []catalog.State // of the objects that the set was made from
	active      int
	subscribers []*subscription
}

// rebuild is the only request: each build makes a set of all policies.
var rebuild = reconcile.Request{NamespacedName: client.ObjectKey{Name: "policies"}}

// New returns a keeper and registers its metrics. It reads stored revisions from the namespace of the release that grants what
// policies may patch.
func New(patchable grants.Patchable, gate Decider, source Facts, registry prometheus.Registerer) *Keeper {
	k := &Keeper{release: patchable.By, gate: gate, facts: source, metrics: newMetrics()}
	k.catalog.Reads, k.catalog.Patchable = k.missingReads, patchable
	registry.MustRegister(k.metrics.reloads, k)
	return k
}

// CacheOptions restricts the manager's cache to the ControllerRevisions that store policies: a cluster has many others.
func CacheOptions(namespace string) map[client.Object]cache.ByObject {
	labelled, err := labels.NewRequirement(PolicyLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	only := map[string]cache.Config{namespace: {LabelSelector: labels.NewSelector().Add(*labelled)}}
	return map[client.Object]cache.ByObject{&appsv1.ControllerRevision{}: {Namespaces: only}}
}

// SetupWithManager registers the keeper. The manager's cache must have CacheOptions.
func (k *Keeper) SetupWithManager(mgr ctrl.Manager) error {
	k.cached = mgr.GetClient()
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{rebuild}
	})
	everywhere := false
	return ctrl.NewControllerManagedBy(mgr).Named("catalog").
		Watches(&v1alpha1.RegoPolicy{}, all).
		Watches(&appsv1.ControllerRevision{}, all).
		WatchesRawSource(source.Func(k.start)).
		WithOptions(controller.Options{NeedLeaderElection: &everywhere, MaxConcurrentReconciles: 1}).
		Complete(k)
}

// start enqueues the first build, which is needed even if the cluster has no policies. The controller runs it after its caches have
// synced.
func (k *Keeper) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	again := func() { queue.Add(rebuild) }
	k.facts.Notify(again)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ctx = ctx
	for _, s := range k.subscribers {
		go s.run(ctx)
	}
	queue.Add(rebuild)
	return nil
}

// Reconcile makes a set of all policies and swaps it into the gate.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var objects v1alpha1.RegoPolicyList
	if err := k.cached.List(ctx, &objects); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing RegoPolicies: %w", err)
	}
	good, err := k.stored(ctx, objects.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	k.wantedReads = nil
	set, states := k.catalog.Build(ctx, objects.Items, good)
	wait, err := k.await(ctx, objects.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	k.use(set, states)
	k.publish(ctx, states, unusable(objects.Items, states, good))
	return reconcile.Result{RequeueAfter: wait}, nil
}

// patience is how long the first set waits for the policies of the release, which the leader creates in a second or two.
const patience = 30 * time.Second

// await returns when to look again if the first set waits for policies of the release that do not exist yet. Without some of them, requests would be
// admitted that the release denies.
func (k *Keeper) await(ctx context.Context, objects []v1alpha1.RegoPolicy) (wait time.Duration, err error) {
	if set, _ := k.Decides(); k.Ships == nil || set != nil {
		return 0, nil
	}
	names, err := k.Ships(ctx) // without the lock, which the probes of the kubelet need
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(objects, func(o v1alpha1.RegoPolicy) bool { return o.Name == name })
	})
	if k.began.IsZero() {
		k.began = time.Now()
	}
	if k.missing = nil; time.Since(k.began) < patience && len(names) > 0 {
		k.missing = names
		return patience, nil
	}
	return 0, nil
}

// stored returns the latest stored good revision of each policy.
func (k *Keeper) stored(ctx context.Context, objects []v1alpha1.RegoPolicy) (map[string]catalog.Revision, error) {
	var list appsv1.ControllerRevisionList
	options := []client.ListOption{client.InNamespace(k.release.Namespace), client.HasLabels{PolicyLabel}, client.UnsafeDisableDeepCopy}
	if err := k.cached.List(ctx, &list, options...); err != nil {
		return nil, fmt.Errorf("listing the ControllerRevisions of namespace %s: %w", k.release.Namespace, err)
	}
	decoded := map[types.UID]*catalog.Revision{}
	good := Newest(list.Items, objects, func(stored *appsv1.ControllerRevision) *catalog.Revision {
		decoded[stored.UID] = k.decode(ctx, stored)
		return decoded[stored.UID]
	})
	k.decoded = decoded
	return good, nil
}

// Newest returns the newest stored revision of each object, of those that decode does not return nil for. A policy that was deleted and
// created again has none of the earlier one.
func Newest(
	stored []appsv1.ControllerRevision, objects []v1alpha1.RegoPolicy, decode func(*appsv1.ControllerRevision) *catalog.Revision,
) map[string]catalog.Revision {
	slices.SortFunc(stored, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(b.Revision, a.Revision) })
	good := map[string]catalog.Revision{}
	for i := range stored {
		revision := decode(&stored[i])
		if revision == nil {
			continue
		}
		known := slices.ContainsFunc(objects, func(o v1alpha1.RegoPolicy) bool {
			return o.Name == revision.Policy.Name && o.UID == revision.Policy.UID
		})
		if _, newer := good[revision.Policy.Name]; known && !newer {
			good[revision.Policy.Name] = *revision
		}
	}
	return good
}

// Decode reads a stored revision, which must be of the policy that its label names.
func Decode(stored *appsv1.ControllerRevision) (*catalog.Revision, error) {
	revision, err := catalog.Decode(stored.Data.Raw)
	if err == nil && revision.Policy.Name != stored.Labels[PolicyLabel] {
		err = fmt.Errorf("it contains policy %s", revision.Policy.Name)
	}
	if err != nil {
		return nil, err
	}
	return &revision, nil
}

// decode decodes each stored revision once.
func (k *Keeper) decode(ctx context.Context, stored *appsv1.ControllerRevision) *catalog.Revision {
	if revision, ok := k.decoded[stored.UID]; ok {
		return revision
	}
	revision, err := Decode(stored)
	if err != nil {
		log.FromContext(ctx).Error(err, "a stored revision cannot be used", "controllerRevision", stored.Name)
	}
	return revision
}

// use swaps the set into the gate. The first set waits until all caches have synced and the policies exist: a gate without a set fails
// requests, while one with an empty set would admit all.
func (k *Keeper) use(set *catalog.Set, states []catalog.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.facts.Use(set.Reads(), k.wantedReads)
	filling := slices.ContainsFunc(states, func(s catalog.State) bool { return s.Problem == v1alpha1.ReasonReadsNotSynced })
	if !k.swapped && (filling || len(set.Policies()) == 0 || len(k.missing) > 0) {
		return
	}
	k.gate.Swap(set)
	k.swapped, k.hash, k.active = true, set.Hash(), 0
	k.set, k.setStates = set, states
	for _, p := range set.Policies() {
		if p.Broken() == nil {
			k.active++
		}
	}
}

// unusable returns an error for policies that were good, here or in another replica, and of which this replica can use no revision.
// All replicas of this version have the same problem, so it must not replace a version that can use them.
func unusable(objects []v1alpha1.RegoPolicy, states []catalog.State, good map[string]catalog.Revision) error {
	var errs []error
	for _, s := range states {
		i := slices.IndexFunc(objects, func(o v1alpha1.RegoPolicy) bool { return o.Name == s.Name })
		_, stored := good[s.Name]
		wasGood := stored || objects[i].Status.ActiveRevision != ""
		if !s.Library && s.Active == nil && catalog.OfText(s.Problem) && wasGood {
			errs = append(errs, fmt.Errorf("policy %s was active before, but none of its revisions can be used: %w", s.Name, s.Err))
		}
	}
	return errors.Join(errs...)
}

// missingReads returns what prevents the reads of a policy from being answered.
func (k *Keeper) missingReads(_ context.Context, policy string, reads []engine.Read) *catalog.Lack {
	k.wantedReads = append(k.wantedReads, reads...)
	lacks := k.facts.Watch(k.ctx, policy, reads)
	if len(lacks) == 0 {
		return nil
	}
	lack := &catalog.Lack{Problem: v1alpha1.ReasonReadsNotSynced}
	var errs []error
	for _, l := range lacks {
		errs = append(errs, l.Err)
		var forbidden *facts.ForbiddenError
		problem := v1alpha1.ReasonReadsFailed
		switch {
		case errors.Is(l.Err, facts.ErrNotSynced):
			continue
		case errors.Is(l.Err, facts.ErrNotServed):
			problem = v1alpha1.ReasonKindNotServed
		case errors.As(l.Err, &forbidden):
			problem = v1alpha1.ReasonReadsForbidden
			grant := catalog.Grant{APIGroup: forbidden.Group, Resource: forbidden.Resource, Verbs: forbidden.Verbs}
			lack.Missing = append(lack.Missing, grant)
		}
		lack.Problem = weights[max(slices.Index(weights, lack.Problem), slices.Index(weights, problem))]
	}
	if len(lack.Missing) > 0 {
		errs = append(errs, k.grantCommand(lack.Missing))
	}
	lack.Err = errors.Join(errs...)
	return lack
}

// grantCommand returns how to grant the missing rights: by a chart value, and a ClusterRole if the chart makes no roles.
func (k *Keeper) grantCommand(missing []catalog.Grant) error {
	reads, rules := map[string]bool{}, make([]string, len(missing))
	for i, g := range missing {
		reads[schema.GroupResource{Group: g.APIGroup, Resource: g.Resource}.String()] = true
		rules[i] = g.String()
	}
	return fmt.Errorf("to grant access, run: %s; with the chart value rbac.create=false, also add a ClusterRole with the rule %s",
		k.release.Upgrade("rbac.reads", reads), strings.Join(rules, " and the rule "))
}

// weights orders problems with reads by severity; the most severe one is reported.
var weights = []v1alpha1.ConditionReason{v1alpha1.ReasonReadsNotSynced, v1alpha1.ReasonReadsFailed, v1alpha1.ReasonReadsForbidden, v1alpha1.ReasonKindNotServed}

// Ready reports whether this replica can decide: at least one policy is active, and the caches of active policies have synced. A
// policy that never was good, or whose kinds cannot be read in this cluster, does not make the replica unready. Nor does one that
// was active before and that this version cannot use, unless another version runs, which may use it: all replicas of this version
// have the problem, and must not all become unready.
func (k *Keeper) Ready(r *http.Request) error {
	unusable, err := k.ready()
	if err != nil || unusable == nil {
		return err
	}
	ctx := context.Background()
	if r != nil {
		ctx = r.Context()
	}
	if k.Replaces == nil || k.Replaces(ctx) {
		return unusable
	}
	return nil
}

func (k *Keeper) ready() (unusable, err error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	switch {
	case k.states == nil:
		return nil, errors.New("policies not loaded")
	case len(k.states) == 0:
		return nil, errors.New("the cluster has no RegoPolicy")
	case !k.swapped:
		return nil, k.waitReason()
	case k.active == 0:
		return nil, errors.New("no RegoPolicy is active")
	}
	return k.unusable, k.facts.Synced()
}

// waitReason returns why there is no first set yet.
func (k *Keeper) waitReason() error {
	for _, s := range k.states {
		if s.Problem == v1alpha1.ReasonReadsNotSynced {
			return s.Err
		}
	}
	if len(k.missing) > 0 {
		return fmt.Errorf("%d RegoPolicies of the release do not exist yet, such as %s", len(k.missing), k.missing[0])
	}
	return errors.New("the cluster has no RegoPolicy except libraries")
}

// States returns the states of all RegoPolicies, by name.
func (k *Keeper) States() []catalog.State {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.SortedFunc(maps.Values(k.states), func(a, b catalog.State) int { return strings.Compare(a.Name, b.Name) })
}

// State returns the state of a RegoPolicy.
func (k *Keeper) State(name string) (catalog.State, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	s, ok := k.states[name]
	return s, ok
}

// Decides returns the gate's set and the states of the objects that it was made from; nil before the first set.
func (k *Keeper) Decides() (*catalog.Set, []catalog.State) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.set, k.setStates
}

// Hash returns a hash of the gate's set, by which replicas compare their policies; "" before the first set.
func (k *Keeper) Hash() string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.hash
}
