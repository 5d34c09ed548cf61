package pool

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/persist"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// mostNamed is how many members a message names.
const mostNamed = 10

// save writes the status over the pool as it was read, if it has changed.
func (r *Reconciler) save(ctx context.Context, l *look) error {
	l.summarise()
	changed, err := persist.Status(ctx, r.Client, l.pool, l.read, &l.pool.Status)
	if changed {
		l.read = l.pool.Status.DeepCopy()
	}
	return err
}

// summarise says in the status how the members were read, and what became of what was tried.
func (l *look) summarise() {
	status := &l.pool.Status
	status.ObservedGeneration = l.pool.Generation
	status.DesiredTemplateHash = l.hash
	status.Selector = v1alpha1.LabelPoolUID + "=" + string(l.pool.UID)
	status.Replicas, status.ReadyReplicas, status.UpdatedReplicas, status.RestartPendingReplicas = int32(len(l.members)), 0, 0, 0
	for _, m := range l.staying() {
		if m.ready() {
			status.ReadyReplicas++
		}
		if m.Labels[v1alpha1.LabelTemplateHash] == l.hash {
			if !l.stale(m) {
				status.UpdatedReplicas++
			}
			if m.restartRequired() {
				status.RestartPendingReplicas++
			}
		}
	}
	conditions := []metav1.Condition{l.available(), l.progressing(), l.synced()}
	for _, c := range append(conditions, l.scaleDownBlocked(), l.ready(conditions)) {
		v1alpha1.SetCondition(&status.Conditions, c, l.now)
	}
}

func (l *look) condition(t v1alpha1.ConditionType, is bool, reason v1alpha1.ConditionReason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return t.Condition(status, reason, l.pool.Generation, message)
}

func (l *look) available() metav1.Condition {
	ready, t := int(l.pool.Status.ReadyReplicas), v1alpha1.ConditionAvailable
	if ready >= l.desired() {
		return l.condition(t, true, v1alpha1.ReasonAllReplicasReady, "")
	}
	return l.condition(t, false, v1alpha1.ReasonInsufficientReadyReplicas, fmt.Sprintf("%d of %d members are ready", ready, l.desired())+l.stuck())
}

// stuck names the members that only a user can help, and the command that does.
func (l *look) stuck() (text string) {
	for _, of := range []struct {
		what, wayOut string
		is           func(member) bool
	}{
		{"lost", commands.Line("kubectl", "delete", "svm", "NAME", "-n", l.pool.Namespace) + " replaces one", member.lost},
		{"held back", commands.Line("kubectl", "sallyport", "why", "svm", "NAME", "-n", l.pool.Namespace), member.heldBack},
	} {
		var names []string
		for _, m := range l.staying() {
			if of.is(m) {
				names = append(names, m.Name)
			}
		}
		if len(names) > mostNamed {
			names = append(names[:mostNamed], fmt.Sprintf("%d more", len(names)-mostNamed))
		}
		if len(names) > 0 {
			text += fmt.Sprintf("; %s: %s (%s)", of.what, strings.Join(names, ", "), of.wayOut)
		}
	}
	return text
}

func (l *look) progressing() metav1.Condition {
	t := v1alpha1.ConditionProgressing
	switch {
	case l.readOnly:
		return l.condition(t, false, v1alpha1.ReasonReadOnly, runtime.Message(runtime.ErrReadOnly))
	case l.unread != nil:
		return l.condition(t, false, v1alpha1.ReasonFailedCreate, l.unread.Error())
	case l.failed != nil:
		return l.condition(t, false, v1alpha1.ReasonFailedCreate, l.failed.Error())
	case len(l.blocked) > 0:
		return l.condition(t, false, l.blocked[0].reason, whoStays(l.blocked))
	case len(l.members) != l.desired():
		return l.condition(t, true, v1alpha1.ReasonReplicasProgressing, fmt.Sprintf("%d of %d members exist", len(l.members), l.desired()))
	}
	return l.condition(t, false, v1alpha1.ReasonSteady, "")
}

func (l *look) synced() metav1.Condition {
	t, all, stale, pending := v1alpha1.ConditionSynced, len(l.staying()), len(l.allStale()), l.pool.Status.RestartPendingReplicas
	var other string
	if stale > 0 {
		other = fmt.Sprintf("%d of %d members are not at release %s of VSphereTemplate %s", stale, all, l.release, l.pool.Spec.Follows().Name)
	}
	switch outdated := len(l.outdated()); {
	case l.lags != nil:
		return l.condition(t, false, v1alpha1.ReasonRolloutFailed, l.lags.Error())
	case len(l.held) > 0:
		return l.condition(t, false, l.held[0].reason, other+": "+whoStays(l.held))
	case stale > 0 && l.approves():
		return l.condition(t, false, v1alpha1.ReasonRolloutInProgress, other)
	case outdated > 0:
		return l.condition(t, false, v1alpha1.ReasonRolloutInProgress, fmt.Sprintf("%d of %d members have an earlier template", outdated, all))
	case stale > 0:
		return l.condition(t, false, v1alpha1.ReasonRestartPendingApproval,
			other+"; restartApprovalMode is Manual: delete a member to replace it (kubectl delete svm NAME)")
	case pending > 0:
		return l.condition(t, false, v1alpha1.ReasonRestartPendingApproval,
			fmt.Sprintf("%d of %d members need a restart (kubectl sallyport restart NAME)", pending, all))
	}
	return l.condition(t, true, v1alpha1.ReasonPoolSynced, "")
}

func (l *look) scaleDownBlocked() metav1.Condition {
	t := v1alpha1.ConditionScaleDownBlocked
	if len(l.blocked) == 0 {
		return l.condition(t, false, v1alpha1.ReasonNotBlocked, "")
	}
	return l.condition(t, true, l.blocked[0].reason, whoStays(l.blocked))
}

// whoStays names the members that should go and do not, and says why.
func whoStays(all []blocked) string {
	var texts []string
	for _, b := range all[:min(len(all), mostNamed)] {
		texts = append(texts, b.why)
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// ready is true when nothing is left to be done, and otherwise says what is.
func (l *look) ready(of []metav1.Condition) metav1.Condition {
	if l.readOnly {
		return l.condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonReadOnly, runtime.Message(runtime.ErrReadOnly))
	}
	for _, c := range of {
		good := c.Status == metav1.ConditionTrue
		if l.unread != nil && c.Type != string(v1alpha1.ConditionProgressing) {
			continue // the other conditions miss the member
		}
		if c.Type == string(v1alpha1.ConditionProgressing) {
			good = c.Reason == string(v1alpha1.ReasonSteady)
		}
		if !good {
			return l.condition(v1alpha1.ConditionReady, false, v1alpha1.ConditionReason(c.Reason), c.Message)
		}
	}
	return l.condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAsWanted, "")
}
