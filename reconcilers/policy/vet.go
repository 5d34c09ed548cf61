package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// vetPeriod is the interval at which a rejected release is checked again.
const vetPeriod = 5 * time.Second

var (
	errNotVetted = errors.New("the policies of this release have not been checked yet")
	errVetAgain  = errors.New("policies changed in the meantime")
)

// Vetting keeps a replica unready until all policies of its release can be applied by the leader: an upgrade stops at
// a policy that fails its check, and the old replicas keep serving. It ignores a ConfigMap of another shipment, which
// is for other replicas. Once passed, it stays so: later edits of policies must not end the service.
type Vetting struct {
	// Reconciler is the one of this replica.
	Reconciler *Reconciler
	// Shipment is the shipping.ShipmentAnnotation of the ConfigMap for this replica. Empty means any.
	Shipment string
	// Pod is this replica's Pod, for events. Nil outside a Pod.
	Pod *corev1.Pod

	mu   sync.Mutex
	good bool
	why  error
}

type vetted struct {
	world string // identifies what was checked
	wrong map[string]Finding
}

// NeedLeaderElection returns false: every replica vets.
func (v *Vetting) NeedLeaderElection() bool { return false }

// Ready is a readiness probe.
func (v *Vetting) Ready(*http.Request) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.good:
		return nil
	case v.why != nil:
		return v.why
	}
	return errNotVetted
}

// Start checks until everything can be applied or ctx ends.
func (v *Vetting) Start(ctx context.Context) error {
	last := vetted{}
	for {
		wait := vetPeriod
		now, err := v.Reconciler.vet(ctx, v.Shipment, last)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			wait = firstRetry
			v.set(fmt.Errorf("checking the policies of this release: %w", err))
			if !errors.Is(err, errVetAgain) {
				ctrl.LoggerFrom(ctx).Error(err, "checking the policies of this release")
			}
		case len(now.wrong) == 0:
			v.set(nil)
			return nil
		default:
			v.report(ctx, last.wrong, now.wrong)
			last = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (v *Vetting) set(why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.good, v.why = why == nil, why
}

// report stores the problems for the probe, and logs and records those that are new.
func (v *Vetting) report(ctx context.Context, before, now map[string]Finding) {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		texts = append(texts, "RegoPolicy "+name+": "+now[name].Message)
		if now[name] == before[name] {
			continue
		}
		ctrl.LoggerFrom(ctx).Info("this replica does not become ready: a policy of its release cannot be applied",
			"RegoPolicy", name, "reason", now[name].Reason, "message", now[name].Message)
		if v.Pod != nil {
			v.Reconciler.warnOfShipped(v.Pod, name, now[name])
		}
	}
	v.set(errors.New(strings.Join(texts, "; ")))
}

// vet checks a shipment, unless it was checked before, and returns the problems by policy name. A name conflict with
// a user's policy does not block readiness.
func (r *Reconciler) vet(ctx context.Context, shipment string, before vetted) (vetted, error) {
	r.trying.Lock()
	defer r.trying.Unlock()
	c, err := r.readShipped(ctx)
	if c == nil || err != nil || shipment != "" && c.source.Annotations[shipping.ShipmentAnnotation] != shipment {
		return vetted{}, err
	}
	world := c.inputs(func(live *unstructured.Unstructured) any { return live.GetGeneration() })
	now := vetted{world: world, wrong: map[string]Finding{}}
	if now.world == before.world {
		return before, nil
	}
	c.prepare(ctx)
	for name, s := range c.shipments {
		switch s.Reason {
		case v1alpha1.ReasonUnreadable:
			now.wrong[name] = s.Finding
		case v1alpha1.ReasonCheckFailed, v1alpha1.ReasonApplyFailed:
			if s.shipped != nil {
				now.wrong[name] = s.Finding
			}
		}
		if s.Reason == v1alpha1.ReasonApplyFailed {
			now.world = "" // it may resolve by itself
		}
	}
	if c.conflict {
		return vetted{}, errVetAgain
	}
	return now, nil
}
