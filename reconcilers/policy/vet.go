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
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// vetPeriod is how long to wait before looking again whether a release that was refused can be applied.
const vetPeriod = 5 * time.Second

var (
	errNotVetted = errors.New("the policies of this release have not been checked yet")
	errVetAgain  = errors.New("policies changed in the meantime")
)

// Vetting keeps a replica from being ready before all that its release ships could be applied, whoever leads: so an upgrade stops
// at a policy that does not pass its check, and the replicas that there were go on. It does nothing to a ConfigMap of another
// shipment, which is for other replicas. What was found good stays so: what people do to policies later is no reason to end the
// service.
type Vetting struct {
	// Reconciler is the one of this replica.
	Reconciler *Reconciler
	// Shipment is what the ConfigMap must carry as shipping.ShipmentAnnotation to be this replica's. Empty means any.
	Shipment string
	// Pod is this replica's, whose events tell. Nil outside of a pod.
	Pod *corev1.Pod

	mu   sync.Mutex
	good bool
	why  error
}

// vetted is what became of a try.
type vetted struct {
	world string // what was tried
	wrong map[string]Finding
}

// NeedLeaderElection is for the manager: every replica does this.
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

// Start tries until everything can be applied, or the context ends.
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
			v.tell(ctx, last.wrong, now.wrong)
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

// tell says in the probe all that is wrong, and in the log and on the Pod what was not so before.
func (v *Vetting) tell(ctx context.Context, before, now map[string]Finding) {
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

// vet tries what a shipment has, unless that was tried before, and gives what speaks against it by the policies' names. A name that
// somebody else has taken is no reason not to serve: that policy is theirs.
func (r *Reconciler) vet(ctx context.Context, shipment string, before vetted) (vetted, error) {
	r.trying.Lock()
	defer r.trying.Unlock()
	c, err := r.unpack(ctx)
	if c == nil || err != nil || shipment != "" && c.source.Annotations[shipping.ShipmentAnnotation] != shipment {
		return vetted{}, err
	}
	now := vetted{world: c.called(), wrong: map[string]Finding{}}
	if now.world == before.world {
		return before, nil
	}
	c.try(ctx)
	for name, s := range c.shipments {
		if c.odd[name] != nil {
			continue // which is no reason for the others not to decide
		}
		switch s.Reason {
		case v1alpha1.ReasonUnreadable:
			now.wrong[name] = s.Finding
		case v1alpha1.ReasonCheckFailed, v1alpha1.ReasonApplyFailed:
			if s.shipped != nil {
				now.wrong[name] = s.Finding
			}
		}
		if s.Reason == v1alpha1.ReasonApplyFailed {
			now.world = "" // which may pass
		}
	}
	if c.again {
		return vetted{}, errVetAgain
	}
	return now, nil
}

// called tells one world from another.
func (c *consignment) called() string {
	var all strings.Builder
	fmt.Fprint(&all, c.source.UID, c.source.ResourceVersion)
	for _, name := range slices.Sorted(maps.Keys(c.live)) {
		fmt.Fprint(&all, " ", c.live[name].GetUID(), c.live[name].GetGeneration())
	}
	return all.String()
}
