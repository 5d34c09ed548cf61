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

// shipment is what became of one policy of the ConfigMap. Without a reason nothing is known.
type shipment struct {
	Finding
	// shipped is the policy as it is shipped, nil if that cannot be read, or if it is not shipped any more.
	shipped *v1alpha1.RegoPolicy
}

// consignment is one look at the ConfigMap and at the policies.
type consignment struct {
	*Reconciler
	source    *corev1.ConfigMap
	live      map[string]*unstructured.Unstructured
	typed     map[string]*v1alpha1.RegoPolicy
	odd       map[string]error // what is not a RegoPolicy, though it is stored as one: it is left alone
	changes   []*change
	shipments map[string]shipment
	errs      []error
	again     bool // somebody was faster
}

// change is something to be done to one policy.
type change struct {
	name string
	// after is what the policy will be, nil if it will not be.
	after *v1alpha1.RegoPolicy
	// shipped is what is shipped of it, nil for one that is not shipped any more.
	shipped *v1alpha1.RegoPolicy
	// do makes the change and gives what the policy is then, if there is one.
	do   func(context.Context) (*v1alpha1.RegoPolicy, error)
	done news
	// unsure is why it could not be tried.
	unsure error
	// held is that it is not made.
	held bool
}

// news is something to tell about a change when it is done. The empty one is not told.
type news struct{ reason, note string }

// ship applies the policies of the ConfigMap. Whatever asks for it, it looks at all of them, past every cache: they are few, and
// it is seldom.
func (r *Reconciler) ship(ctx context.Context) (ctrl.Result, error) {
	r.trying.Lock()
	defer r.trying.Unlock()
	c, err := r.unpack(ctx)
	if c == nil || err != nil {
		return ctrl.Result{}, err
	}
	c.try(ctx)
	for _, change := range c.changes {
		if !change.held {
			c.carryOut(ctx, change)
		}
	}
	c.report()
	if err := errors.Join(c.errs...); err != nil || !c.again {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: firstRetry}, nil
}

// unpack reads the ConfigMap and all policies. It gives nil if this release ships nothing.
func (r *Reconciler) unpack(ctx context.Context) (*consignment, error) {
	c := &consignment{Reconciler: r, source: &corev1.ConfigMap{}, shipments: map[string]shipment{}}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.ConfigMap}, c.source)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil // being uninstalled, perhaps: the policies stay as they are
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", r.Namespace, r.ConfigMap, err)
	case c.source.Annotations[shipping.ReleaseAnnotation] != r.Release:
		ctrl.LoggerFrom(ctx).Info("not applying the policies of another release", "configMap", r.ConfigMap,
			"itsRelease", c.source.Annotations[shipping.ReleaseAnnotation], "release", r.Release)
		return nil, nil
	}
	return c, c.look(ctx)
}

// try finds out what is to be done, and which of it must not be.
func (c *consignment) try(ctx context.Context) {
	for _, name := range shipping.Names(c.source) {
		c.plan(ctx, name)
	}
	c.retire()
	slices.SortStableFunc(c.changes, inOrder)
	refused := c.check(ctx)
	for _, change := range c.changes {
		switch why := refused[change.name]; {
		case change.unsure != nil:
			c.failed(change.name, change.shipped, fmt.Errorf("running its tests: %w", change.unsure))
		case why != "":
			c.refuse(change, why)
		default:
			continue
		}
		change.held = true
	}
}

// look reads all policies.
func (c *consignment) look(ctx context.Context) error {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("RegoPolicyList"))
	if err := c.Live.List(ctx, all); err != nil {
		return fmt.Errorf("listing RegoPolicies: %w", err)
	}
	c.live, c.typed, c.odd = map[string]*unstructured.Unstructured{}, map[string]*v1alpha1.RegoPolicy{}, map[string]error{}
	for i := range all.Items {
		u, policy := &all.Items[i], &v1alpha1.RegoPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, policy); err != nil {
			c.odd[u.GetName()] = fmt.Errorf("decoding RegoPolicy %s: %w", u.GetName(), err)
			continue
		}
		c.live[u.GetName()], c.typed[u.GetName()] = u, policy
	}
	return nil
}

// plan finds out what is to be done to one shipped policy.
func (c *consignment) plan(ctx context.Context, name string) {
	shipped, err := shipping.ReadPolicy(c.source, name, c.Sources)
	if err != nil {
		c.shipments[name] = shipment{Finding{v1alpha1.ReasonUnreadable, err.Error()}, nil}
		return
	}
	if err := c.odd[name]; err != nil {
		c.failed(name, shipped, err)
		return
	}
	live := c.live[name]
	c.shipments[name] = shipment{Finding{v1alpha1.ReasonShipped, fmt.Sprintf("Release %s is applied.", c.Release)}, shipped}
	switch {
	case live != nil && live.GetDeletionTimestamp() != nil:
		return // put back when it is gone
	case live != nil && !shipping.Shipped(live):
		c.shipments[name] = shipment{Finding{v1alpha1.ReasonNameTaken, fmt.Sprintf(
			"Release %s also ships a RegoPolicy %s, which is not applied because this one was not created by Sallyport. "+
				"Rename this one, or replace it with the shipped one: %s", c.Release, name, commands.Line("kubectl", "sallyport", "policies", "reset", name),
		)}, shipped}
		return
	case live != nil && shipping.ResetWanted(live):
		c.changes = append(c.changes, &change{
			name: name, after: shipped, shipped: shipped, done: news{reasonReset, "All fields were reset to release " + c.Release + "."},
			do: func(ctx context.Context) (*v1alpha1.RegoPolicy, error) {
				return c.typed[name], shipping.Reset(ctx, c.Client, shipped)
			},
		})
		return
	}
	step, err := shipping.Next(live, shipped)
	if err != nil || step == nil {
		c.failed(name, shipped, err)
		return
	}
	after, err := step.Try(ctx, c.Client)
	if err != nil {
		c.failed(name, shipped, err)
		return
	}
	planned := &change{name: name, after: after, shipped: shipped, do: func(ctx context.Context) (*v1alpha1.RegoPolicy, error) {
		return step.Do(ctx, c.Client)
	}}
	if live == nil && c.wasThere(name) {
		planned.done = news{reasonPutBack, "The policy was deleted but is shipped, so it was created again. To disable it, use the values of the chart, or set spec.mode to Audit."}
	}
	c.changes = append(c.changes, planned)
}

// retire finds the policies that earlier releases shipped and this one does not.
func (c *consignment) retire() {
	for name, live := range c.live {
		if _, shipped := c.shipments[name]; shipped || live.GetDeletionTimestamp() != nil || !shipping.Retiring(live) {
			continue
		}
		untouched, err := shipping.Untouched(live)
		if err != nil {
			c.failed(name, nil, fmt.Errorf("retiring RegoPolicy %s: %w", name, err))
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

// inOrder has libraries come before those that may need them, and go after them.
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

func (c *consignment) carryOut(ctx context.Context, change *change) {
	about, err := change.do(ctx)
	if err != nil {
		c.failed(change.name, change.shipped, err)
		return
	}
	if change.done.reason != "" {
		c.say(about, corev1.EventTypeNormal, change.done.reason, "Apply", change.done.note)
	}
}

// failed takes down what went wrong with a policy, if anything did. A conflict is somebody who was faster: what is known of it
// stays so until the next look.
func (c *consignment) failed(name string, shipped *v1alpha1.RegoPolicy, err error) {
	switch {
	case err == nil:
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		c.again = true
		c.shipments[name], _, _ = c.shipment(name)
	default:
		c.errs = append(c.errs, err)
		if shipped != nil {
			c.shipments[name] = shipment{Finding{v1alpha1.ReasonApplyFailed, fmt.Sprintf("Release %s: %v", c.Release, err)}, shipped}
		}
	}
}

// refuse takes down that a change is not made.
func (c *consignment) refuse(change *change, why string) {
	text := fmt.Sprintf("Release %s is not applied: %s", c.Release, why)
	if change.shipped == nil {
		text = fmt.Sprintf("Release %s does not ship this policy, but it stays: without it, %s", c.Release, why)
	}
	c.shipments[change.name] = shipment{Finding{v1alpha1.ReasonCheckFailed, text}, change.shipped}
}

// wasThere reports whether a shipped policy has been there.
func (c *consignment) wasThere(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[name]
}

// report keeps the shipments for the status of the policies, has those shown that changed, and tells of new trouble on the
// ConfigMap.
func (c *consignment) report() {
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
		if !known && c.typed[name] != nil { // told by the leader before
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

// shipment gives what became of a policy of the ConfigMap, and whether it is one. Nothing is known before the first look.
func (r *Reconciler) shipment(name string) (s shipment, is, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, is = r.shipments[name]
	return s, is, r.shipments != nil
}
