package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/reconcilers/pool/busy"
)

type poolReport struct {
	Status v1alpha1.VirtualMachinePoolStatus `json:"status"`
	// Reconciled reports whether the status is about the current spec.
	Reconciled bool `json:"reconciled"`
	// Going are the members that are being deleted or named to go.
	Going []goingMember `json:"going,omitempty"`
	// Busy are the members with a busy Lease, ordered by its expiry.
	Busy []busyMember `json:"busy,omitempty"`
}

type goingMember struct {
	Name string `json:"name"`
	// Deleted reports that the member is being deleted. Otherwise it is in spec.scaleDownTargets.
	Deleted bool `json:"deleted"`
}

type busyMember struct {
	Name   string    `json:"name"`
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
}

func (l *looking) pool(ctx context.Context, now time.Time) error {
	pool := &v1alpha1.VirtualMachinePool{}
	if !l.decode(pool) {
		return nil
	}
	l.r.Pool = &poolReport{Status: pool.Status, Reconciled: pool.Status.ObservedGeneration == pool.Generation}
	members, err := l.Members(ctx, pool)
	if err != nil {
		l.r.unknown("members", err)
		return nil
	}
	for i := range members {
		m := &members[i]
		deleted := !m.DeletionTimestamp.IsZero()
		named := slices.ContainsFunc(pool.Spec.ScaleDownTargets, func(t v1alpha1.ScaleDownTarget) bool { return t.UID == m.UID })
		if deleted || named {
			l.r.Pool.Going = append(l.r.Pool.Going, goingMember{m.Name, deleted})
		}
	}
	if err := l.busy(ctx, members, now); err != nil {
		l.r.unknown("busy members", err)
	}
	return nil
}

func (l *looking) busy(ctx context.Context, members []v1alpha1.VirtualMachine, now time.Time) error {
	list := &coordinationv1.LeaseList{}
	if err := l.List(ctx, list, client.InNamespace(l.object.GetNamespace()), client.HasLabels{v1alpha1.LabelBusyMachine}); err != nil {
		return err
	}
	leases := map[types.UID]*coordinationv1.Lease{}
	for i := range list.Items {
		busy.Note(leases, &list.Items[i], now)
	}
	for i := range members {
		if lease := leases[members[i].UID]; lease != nil {
			l.r.Pool.Busy = append(l.r.Pool.Busy, busyMember{members[i].Name, busy.Holder(lease), busy.Until(lease, now).UTC()})
		}
	}
	slices.SortStableFunc(l.r.Pool.Busy, func(a, b busyMember) int { return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Name, b.Name)) })
	return nil
}

// waits returns the conditions that explain what a pool waits for, without duplicate messages.
func (r *poolReport) waits() (waits []*metav1.Condition) {
	for _, t := range []v1alpha1.ConditionType{
		v1alpha1.ConditionScaleDownBlocked, v1alpha1.ConditionProgressing, v1alpha1.ConditionSynced, v1alpha1.ConditionAvailable,
	} {
		c := t.In(r.Status.Conditions)
		if c == nil || v1alpha1.PoolAsWanted(*c) {
			continue
		}
		said := func(other *metav1.Condition) bool { return other.Reason == c.Reason }
		if !slices.ContainsFunc(waits, said) {
			waits = append(waits, c)
		}
	}
	return waits
}

// shownMembers limits the members that are named.
const shownMembers = 10

func (r *poolReport) Text(p *cli.Page) {
	s := &r.Status
	members := fmt.Sprintf("%d; running: %d; up to date: %d", s.Replicas, s.ReadyReplicas, s.UpdatedReplicas)
	if s.StoppedReplicas > 0 {
		members += fmt.Sprintf("; off as wanted: %d", s.StoppedReplicas)
	}
	p.Row("Members:", members)
	var waits, going, busy []string
	for _, c := range r.waits() {
		waits = append(waits, cli.OneLine(c.Type+" "+p.Condition(c)))
	}
	waitingFor(p, r.Reconciled, waits)
	for _, m := range r.Going {
		why := "scale-down target"
		if m.Deleted {
			why = "being deleted"
		}
		going = append(going, fmt.Sprintf("%s (%s)", m.Name, why))
	}
	p.Row("Removing:", cli.SomeOf(going, shownMembers))
	for _, m := range r.Busy[:min(len(r.Busy), shownMembers)] {
		busy = append(busy, cli.Shorten(fmt.Sprintf("%s until %s: %s", m.Name, m.Until.Format(time.RFC3339), m.Holder)))
	}
	if more := len(r.Busy) - shownMembers; more > 0 {
		busy = append(busy, fmt.Sprintf("and %d more", more))
	}
	p.Row("Busy:", strings.Join(busy, "\n"))
}
