package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// shipment is the result for one policy of the ConfigMap. An empty reason means unknown.
type shipment struct {
	Finding
	// shipped is the policy as shipped, nil if it cannot be read or is no longer shipped.
	shipped *v1alpha1.RegoPolicy
}

// rollout is one pass over the ConfigMap and all policies.
type rollout struct {
	*Reconciler
	source    *corev1.ConfigMap
	live      map[string]*unstructured.Unstructured
	typed     map[string]*v1alpha1.RegoPolicy
	changes   []*change
	shipments map[string]shipment
	errs      []error
	conflict  bool // a conflict: run again
}

type change struct {
	name string
	// after is the policy after the change, nil if it is deleted.
	after *v1alpha1.RegoPolicy
	// shipped is the policy as shipped, nil if it is no longer shipped.
	shipped *v1alpha1.RegoPolicy
	// do makes the change and returns the policy after it, if it exists.
	do   func(context.Context) (*v1alpha1.RegoPolicy, error)
	done news
	// unsure is why the change could not be checked.
	unsure error
	// held is set if the change is not made.
	held bool
}

// news is an event to record when the change is done. The zero value is none.
type news struct{ reason, note string }

// ship applies the policies of the ConfigMap. Each pass reads all of them live; there are few, and it runs seldom.
func (r *Reconciler) ship(ctx context.Context) (ctrl.Result, error) {
	r.trying.Lock()
	defer r.trying.Unlock()
	c, err := r.readShipped(ctx)
	if c == nil || err != nil {
		return ctrl.Result{}, err
	}
	c.prepare(ctx)
	for _, change := range c.changes {
		if !change.held {
			c.carryOut(ctx, change)
		}
	}
	c.report()
	if err := errors.Join(c.errs...); err != nil || !c.conflict {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: firstRetry}, nil
}

// readShipped reads the ConfigMap and all policies. It returns nil if this release ships nothing.
func (r *Reconciler) readShipped(ctx context.Context) (*rollout, error) {
	c := &rollout{Reconciler: r, source: &corev1.ConfigMap{}, shipments: map[string]shipment{}}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.ConfigMap}, c.source)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil // the release is probably being uninstalled: the policies stay
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", r.Namespace, r.ConfigMap, err)
	case c.source.Annotations[shipping.ReleaseAnnotation] != r.Release:
		ctrl.LoggerFrom(ctx).Info("not applying the policies of another release", "configMap", r.ConfigMap,
			"itsRelease", c.source.Annotations[shipping.ReleaseAnnotation], "release", r.Release)
		return nil, nil
	}
	return c, c.readPolicies(ctx)
}

// inputs identifies the ConfigMap and the policies, with a version of each.
func (c *rollout) inputs(version func(*unstructured.Unstructured) any) string {
	all := fmt.Sprint(c.source.UID, c.source.ResourceVersion)
	for _, name := range slices.Sorted(maps.Keys(c.live)) {
		all += fmt.Sprint(" ", c.live[name].GetUID(), version(c.live[name]))
	}
	return all
}

// prepare determines the changes, and which of them must not be made.
func (c *rollout) prepare(ctx context.Context) {
	for _, name := range shipping.Names(c.source) {
		c.plan(ctx, name)
	}
	c.retire()
	slices.SortStableFunc(c.changes, inOrder)
	refused := c.check(ctx)
	for _, change := range c.changes {
		switch why := refused[change.name]; {
		case change.unsure != nil:
			c.recordError(change.name, change.shipped, fmt.Errorf("running its tests: %w", change.unsure))
		case why != "":
			c.recordRefused(change, why)
		default:
			continue
		}
		change.held = true
	}
}

func (c *rollout) readPolicies(ctx context.Context) error {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("RegoPolicyList"))
	if err := c.Live.List(ctx, all); err != nil {
		return fmt.Errorf("listing RegoPolicies: %w", err)
	}
	c.live, c.typed = map[string]*unstructured.Unstructured{}, map[string]*v1alpha1.RegoPolicy{}
	for i := range all.Items {
		u, policy := &all.Items[i], &v1alpha1.RegoPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, policy); err != nil {
			return fmt.Errorf("decoding RegoPolicy %s: %w", u.GetName(), err)
		}
		c.live[u.GetName()], c.typed[u.GetName()] = u, policy
	}
	return nil
}

// plan determines the change to one shipped policy.
func (c *rollout) plan(ctx context.Context, name string) {
	shipped, err := shipping.ReadPolicy(c.source, name, c.Sources)
	if err != nil {
		c.shipments[name] = shipment{Finding{v1alpha1.ReasonUnreadable, err.Error()}, nil}
		return
	}
	live := c.live[name]
	c.shipments[name] = shipment{Finding{v1alpha1.ReasonShipped, fmt.Sprintf("Release %s is applied.", c.Release)}, shipped}
	switch {
	case live != nil && live.GetDeletionTimestamp() != nil:
		return // it is created again when it is gone
	case live != nil && !shipping.Shipped(live):
		c.shipments[name] = shipment{Finding{v1alpha1.ReasonNameTaken, fmt.Sprintf(
			"Release %s also ships a RegoPolicy %s, which is not applied because this one was not created by Sallyport. "+
				"Rename this one, or replace it with the shipped one: %s", c.Release, name, commands.Line("kubectl", "sallyport", "policies", "reset", name),
		)}, shipped}
		return
	case live != nil && shipping.ResetWanted(live):
		c.changes = append(c.changes, c.completion(name, shipped))
		return
	}
	step, err := shipping.Next(live, shipped)
	if err != nil || step == nil {
		c.recordError(name, shipped, err)
		return
	}
	after, err := step.Try(ctx, c.Client)
	if err != nil {
		c.recordError(name, shipped, err)
		return
	}
	planned := &change{name: name, after: after, shipped: shipped, do: func(ctx context.Context) (*v1alpha1.RegoPolicy, error) {
		return step.Do(ctx, c.Client)
	}}
	if live == nil && c.existed(name) {
		planned.done = news{reasonPutBack, "The policy was deleted but is shipped, so it was created again. To disable it, use the values of the chart, or set spec.mode to Audit."}
	}
	c.changes = append(c.changes, planned)
}

// completion is the end of a reset that was requested or has begun.
func (c *rollout) completion(name string, shipped *v1alpha1.RegoPolicy) *change {
	planned := &change{name: name, after: shipped, shipped: shipped}
	planned.do = func(ctx context.Context) (*v1alpha1.RegoPolicy, error) {
		wanted, err := shipping.Complete(ctx, c.Client, shipped)
		if wanted {
			planned.done = news{reasonReset, "All fields were reset to release " + c.Release + "."}
		}
		return c.typed[name], err
	}
	return planned
}

// retire determines the changes to policies that earlier releases shipped and this one does not.
func (c *rollout) retire() {
	for name, live := range c.live {
		if _, shipped := c.shipments[name]; shipped || live.GetDeletionTimestamp() != nil || !shipping.Retiring(live) {
			continue
		}
		untouched, err := shipping.Untouched(live)
		if err != nil {
			c.recordError(name, nil, fmt.Errorf("retiring RegoPolicy %s: %w", name, err))
			continue
		}
		gone := &change{name: name, after: c.typed[name], do: func(ctx context.Context) (*v1alpha1.RegoPolicy, error) {
			return c.typed[name], shipping.Disown(ctx, c.Client, live)
		}}
		gone.done = news{reasonKept, fmt.Sprintf("Release %s does not ship this policy. It was edited, so it stays, and Sallyport no longer manages it.", c.Release)}
		if untouched {
			gone.after, gone.done = nil, news{reasonRetired, fmt.Sprintf("Release %s does not ship this policy, and it was not edited.", c.Release)}
			gone.do = func(ctx context.Context) (*v1alpha1.RegoPolicy, error) {
				return c.typed[name], shipping.Delete(ctx, c.Client, live)
			}
		}
		c.changes = append(c.changes, gone)
	}
}

// inOrder orders libraries before the policies that may import them, and their deletion after them.
func inOrder(a, b *change) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.name, b.name))
}

func rank(c *change) int {
	switch {
	case c.after == nil:
		return 2
	case c.after.Spec.Library:
		return 0
	}
	return 1
}

func (c *rollout) carryOut(ctx context.Context, change *change) {
	about, err := change.do(ctx)
	if err != nil {
		c.recordError(change.name, change.shipped, err)
		return
	}
	if change.done.reason != "" {
		c.recordEvent(about, corev1.EventTypeNormal, change.done.reason, "Apply", change.done.note)
	}
}

// recordError records the error for a policy. After a conflict the recorded result stays until the next pass.
func (c *rollout) recordError(name string, shipped *v1alpha1.RegoPolicy, err error) {
	switch {
	case err == nil:
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		c.conflict = true
		c.shipments[name], _, _ = c.shipment(name)
	default:
		c.errs = append(c.errs, err)
		if shipped != nil {
			c.shipments[name] = shipment{Finding{v1alpha1.ReasonApplyFailed, fmt.Sprintf("Release %s: %v", c.Release, err)}, shipped}
		}
	}
}

// recordRefused records that the change is not applied.
func (c *rollout) recordRefused(change *change, why string) {
	text := fmt.Sprintf("Release %s is not applied: %s", c.Release, why)
	if change.shipped == nil {
		text = fmt.Sprintf("Release %s does not ship this policy, but it stays: without it, %s", c.Release, why)
	}
	c.shipments[change.name] = shipment{Finding{v1alpha1.ReasonCheckFailed, text}, change.shipped}
}

// existed reports whether a shipped policy has existed.
func (c *rollout) existed(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[name]
}

// report stores the results for the status of the policies, enqueues those that changed, and records new problems as
// events on the ConfigMap.
func (c *rollout) report() {
	c.mu.Lock()
	before := c.Reconciler.shipments
	c.Reconciler.shipments = c.shipments
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	for name := range c.shipments {
		c.seen[name] = c.seen[name] || c.live[name] != nil
	}
	queue := c.queue
	c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.shipments)) {
		s := c.shipments[name]
		was, known := before[name]
		if !known && c.typed[name] != nil { // the previous leader recorded it
			if shown := v1alpha1.ConditionShipped.In(c.typed[name].Status.Conditions); shown != nil && shown.Status == metav1.ConditionFalse {
				was.Finding = Finding{v1alpha1.ConditionReason(shown.Reason), shown.Message}
			}
		}
		if s.Reason != "" && s.Reason != v1alpha1.ReasonShipped && s.Finding != was.Finding {
			c.warnOfShipped(c.source, name, s.Finding)
		}
	}
	for name := range c.typed {
		if queue != nil {
			queue.Add(request(name))
		}
	}
}

// shipment returns the result for a policy of the ConfigMap, and whether it is one. Nothing is known before the first
// pass.
func (r *Reconciler) shipment(name string) (s shipment, is, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, is = r.shipments[name]
	return s, is, r.shipments != nil
}
