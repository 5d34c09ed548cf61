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

// PolicyLabel is on ControllerRevisions that hold a good revision of the policy that it names.
const PolicyLabel = "sallyport.dev/policy"

// Gate is what uses the policies.
type Gate interface {
	// Swap has all requests from here on judged by the set.
	Swap(set *catalog.Set)
}

// Facts is what answers the questions of policies.
type Facts interface {
	// Watch begins to watch what the reads of a policy need and tells what cannot be answered yet, Use which reads decide and which are wanted
	// at all, Synced whether those that decide can be answered. Notify has a function called when that may have changed.
	Watch(ctx context.Context, policy string, reads []engine.Read) []facts.Lack
	Use(used, wanted []engine.Read)
	Synced() error
	Notify(changed func())
}

// Keeper watches the policies of the cluster and has the gate use them.
type Keeper struct {
	release grants.Release
	gate    Gate
	facts   Facts
	metrics *metrics
	// Replaces reports whether another live replica is of another version. Only then does a policy that this version cannot use keep the
	// replica from being ready; nil means always. It is set before the start.
	Replaces func(context.Context) bool

	catalog catalog.Catalog
	cached  client.Reader
	life    context.Context                 // from the start of the controller to its end
	asked   []engine.Read                   // by the build that is being made
	decoded map[types.UID]*catalog.Revision // what is in ControllerRevisions, which never changes; nil: nothing that can be used

	mu          sync.RWMutex
	states      map[string]catalog.State
	unusable    error // policies that were good once and cannot be used here
	hash        string
	swapped     bool            // the gate has a set
	decides     *catalog.Set    // which it is
	settled     []catalog.State // that belong to it
	deciding    int
	subscribers []*subscription
}

// everything is the one thing to do: a set is made of all policies at once.
var everything = reconcile.Request{NamespacedName: client.ObjectKey{Name: "policies"}}

// New makes a keeper. It looks for stored revisions in the namespace of the release that grants what policies may patch. It registers
// its metrics.
func New(patchable grants.Patchable, gate Gate, source Facts, registry prometheus.Registerer) *Keeper {
	k := &Keeper{release: patchable.By, gate: gate, facts: source, metrics: newMetrics()}
	k.catalog.Reads, k.catalog.Patchable = k.lacking, patchable
	registry.MustRegister(k.metrics.reloads, k)
	return k
}

// CacheOptions are what the keeper needs of the manager's cache: of ControllerRevisions, which are many, those that hold
// policies and no others.
func CacheOptions(namespace string) map[client.Object]cache.ByObject {
	labelled, err := labels.NewRequirement(PolicyLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	only := map[string]cache.Config{namespace: {LabelSelector: labels.NewSelector().Add(*labelled)}}
	return map[client.Object]cache.ByObject{&appsv1.ControllerRevision{}: {Namespaces: only}}
}

// SetupWithManager registers the keeper. The manager's cache must have been made with CacheOptions.
func (k *Keeper) SetupWithManager(mgr ctrl.Manager) error {
	k.cached = mgr.GetClient()
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{everything}
	})
	everywhere := false
	return ctrl.NewControllerManagedBy(mgr).Named("catalog").
		Watches(&v1alpha1.RegoPolicy{}, all).
		Watches(&appsv1.ControllerRevision{}, all).
		WatchesRawSource(source.Func(k.start)).
		WithOptions(controller.Options{NeedLeaderElection: &everywhere, MaxConcurrentReconciles: 1}).
		Complete(k)
}

// start asks for a first build, which there is to be even if the cluster has no policy. The controller begins with it when all
// that it watches is synced, so that no build sees less than there is.
func (k *Keeper) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	again := func() { queue.Add(everything) }
	k.facts.Notify(again)
	k.catalog.Late = again
	k.mu.Lock()
	defer k.mu.Unlock()
	k.life = ctx
	for _, s := range k.subscribers {
		go s.run(ctx)
	}
	queue.Add(everything)
	return nil
}

// Reconcile makes a set of all policies and gives it to the gate.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var objects v1alpha1.RegoPolicyList
	if err := k.cached.List(ctx, &objects); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing RegoPolicies: %w", err)
	}
	good, err := k.stored(ctx, objects.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	k.asked = nil
	set, states := k.catalog.Build(ctx, objects.Items, good)
	k.use(set, states)
	k.publish(ctx, states, unusable(objects.Items, states, good))
	return reconcile.Result{}, nil
}

// stored gives the last good revision that is stored of each policy.
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

// use gives a set to the gate. The first one waits until all caches are filled that will be, and until there is a policy: a
// gate without a set refuses to judge, while one with an empty set would admit everything.
func (k *Keeper) use(set *catalog.Set, states []catalog.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.facts.Use(set.Reads(), k.asked)
	filling := slices.ContainsFunc(states, func(s catalog.State) bool { return s.Problem == v1alpha1.ReasonReadsNotSynced })
	if !k.swapped && (filling || len(set.Policies()) == 0) {
		return
	}
	k.gate.Swap(set)
	k.swapped, k.hash, k.deciding = true, set.Hash(), 0
	k.decides, k.settled = set, states
	for _, p := range set.Policies() {
		if p.Broken() == nil {
			k.deciding++
		}
	}
}

// unusable tells of policies that were good, here or in another replica, and of which this replica can use no revision. The
// same happens in all replicas of this version: it must not replace one that can.
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

// lacking tells the catalog what keeps reads from being answered.
func (k *Keeper) lacking(_ context.Context, policy string, reads []engine.Read) *catalog.Lack {
	k.asked = append(k.asked, reads...)
	lacks := k.facts.Watch(k.life, policy, reads)
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
		errs = append(errs, k.granting(lack.Missing))
	}
	lack.Err = errors.Join(errs...)
	return lack
}

// granting says how rights are granted: by a value of the chart. Where the chart makes no roles, it takes the right as well.
func (k *Keeper) granting(missing []catalog.Grant) error {
	reads, rules := map[string]bool{}, make([]string, len(missing))
	for i, g := range missing {
		reads[schema.GroupResource{Group: g.APIGroup, Resource: g.Resource}.String()] = true
		rules[i] = g.String()
	}
	return fmt.Errorf("to grant access, run: %s; with the chart value rbac.create=false, also add a ClusterRole with the rule %s",
		k.release.Upgrade("rbac.reads", reads), strings.Join(rules, " and the rule "))
}

// weights order problems with reads: where there are several, the last one is told.
var weights = []v1alpha1.ConditionReason{v1alpha1.ReasonReadsNotSynced, v1alpha1.ReasonReadsFailed, v1alpha1.ReasonReadsForbidden, v1alpha1.ReasonKindNotServed}

// Ready tells whether this replica can decide: there is a policy that does, and the caches can answer for those that decide. A policy that
// never was good, or whose kinds cannot be read in this cluster, does not keep the others from deciding. Nor does one that has decided
// before and that this replica cannot use, unless the replica would replace one of another version, which can: all replicas of one version
// have this trouble, and must not all be unready.
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
		return nil, k.waiting()
	case k.deciding == 0:
		return nil, errors.New("no RegoPolicy is active")
	}
	return k.unusable, k.facts.Synced()
}

// waiting tells what the first set waits for.
func (k *Keeper) waiting() error {
	for _, s := range k.states {
		if s.Problem == v1alpha1.ReasonReadsNotSynced {
			return s.Err
		}
	}
	return errors.New("the cluster has no RegoPolicy except libraries")
}

// States of all RegoPolicies, by name.
func (k *Keeper) States() []catalog.State {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.SortedFunc(maps.Values(k.states), func(a, b catalog.State) int { return strings.Compare(a.Name, b.Name) })
}

// State of one RegoPolicy.
func (k *Keeper) State(name string) (catalog.State, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	s, ok := k.states[name]
	return s, ok
}

// Decides gives the set that the gate has, and the states of the objects that it was made of; nil before there is one.
func (k *Keeper) Decides() (*catalog.Set, []catalog.State) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.decides, k.settled
}

// Hash tells replicas apart that decide differently; "" before there is anything that decides.
func (k *Keeper) Hash() string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.hash
}
