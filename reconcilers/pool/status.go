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

// maxNamed limits the members that a message names.
const maxNamed = 10

// save writes the status if it has changed, with the resourceVersion of the pool.
func (r *Reconciler) save(ctx context.Context, l *view) error {
	l.updateStatus()
	changed, err := persist.Status(ctx, r.Client, l.pool, l.before, &l.pool.Status)
	if changed {
		l.before = l.pool.Status.DeepCopy()
	}
	return err
}

// updateStatus derives the status from the members and the results of the pass.
func (l *view) updateStatus() {
	status := &l.pool.Status
	status.ObservedGeneration = l.pool.Generation
	status.DesiredTemplateHash = l.hash
	status.Selector = v1alpha1.LabelPoolUID + "=" + string(l.pool.UID)
	status.Replicas, status.ReadyReplicas, status.StoppedReplicas, status.UpdatedReplicas, status.RestartPendingReplicas = int32(len(l.members)), 0, 0, 0, 0
	for _, m := range l.remaining() {
		if m.ready() {
			status.ReadyReplicas++
		}
		if m.stopped() {
			status.StoppedReplicas++
		}
		if m.Labels[v1alpha1.LabelTemplateHash] == l.hash {
			if !l.otherRelease(m) {
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

func (l *view) condition(t v1alpha1.ConditionType, is bool, reason v1alpha1.ConditionReason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return t.Condition(status, reason, l.pool.Generation, message)
}

func (l *view) available() metav1.Condition {
	ready, stopped, t := int(l.pool.Status.ReadyReplicas), int(l.pool.Status.StoppedReplicas), v1alpha1.ConditionAvailable
	switch {
	case ready >= l.desired():
		return l.condition(t, true, v1alpha1.ReasonAllReplicasReady, "")
	case ready+stopped >= l.desired():
		return l.condition(t, false, v1alpha1.ReasonMembersStopped,
			fmt.Sprintf("%d of %d members are off, as their run policy or the last request wants it", stopped, len(l.members)))
	}
	return l.condition(t, false, v1alpha1.ReasonInsufficientReadyReplicas, fmt.Sprintf("%d of %d members are ready", ready, l.desired())+l.needHelp())
}

func (l *view) needHelp() (text string) {
	for _, of := range []struct {
		what, wayOut string
		is           func(member) bool
	}{
		{"lost", commands.Line("kubectl", "delete", "svm", "NAME", "-n", l.pool.Namespace) + " replaces one", member.lost},
		{"held back", commands.Line("kubectl", "sallyport", "why", "svm", "NAME", "-n", l.pool.Namespace), member.ownedByAnother},
	} {
		var names []string
		for _, m := range l.remaining() {
			if of.is(m) {
				names = append(names, m.Name)
			}
		}
		if len(names) > maxNamed {
			names = append(names[:maxNamed], fmt.Sprintf("%d more", len(names)-maxNamed))
		}
		if len(names) > 0 {
			text += fmt.Sprintf("; %s: %s (%s)", of.what, strings.Join(names, ", "), of.wayOut)
		}
	}
	return text
}

func (l *view) progressing() metav1.Condition {
	t := v1alpha1.ConditionProgressing
	switch {
	case l.halt != nil:
		return l.condition(t, false, v1alpha1.ReasonReadOnly, runtime.Message(l.halt))
	case l.createErr != nil:
		return l.condition(t, false, v1alpha1.ReasonFailedCreate, l.createErr.Error())
	case len(l.blocked) > 0:
		return l.condition(t, false, l.blocked[0].reason, blockedMessage(l.blocked))
	case len(l.members) != l.desired():
		return l.condition(t, true, v1alpha1.ReasonReplicasProgressing, fmt.Sprintf("%d of %d members exist", len(l.members), l.desired()))
	}
	return l.condition(t, false, v1alpha1.ReasonSteady, "")
}

func (l *view) synced() metav1.Condition {
	t, all, stale, pending := v1alpha1.ConditionSynced, len(l.remaining()), len(l.staleMembers()), l.pool.Status.RestartPendingReplicas
	var other string
	if stale > 0 {
		other = fmt.Sprintf("%d of %d members are not at release %s of VSphereTemplate %s", stale, all, l.release, l.pool.Spec.Follows().Name)
	}
	switch outdated := len(l.outdated()); {
	case l.updateErr != nil:
		return l.condition(t, false, v1alpha1.ReasonRolloutFailed, l.updateErr.Error())
	case len(l.notReplaced) > 0:
		return l.condition(t, false, l.notReplaced[0].reason, other+": "+blockedMessage(l.notReplaced))
	case stale > 0 && l.restartsAutomatically():
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

func (l *view) scaleDownBlocked() metav1.Condition {
	t := v1alpha1.ConditionScaleDownBlocked
	if len(l.blocked) == 0 {
		return l.condition(t, false, v1alpha1.ReasonNotBlocked, "")
	}
	return l.condition(t, true, l.blocked[0].reason, blockedMessage(l.blocked))
}

// blockedMessage lists the members that cannot be deleted, with the reasons.
func blockedMessage(all []blocked) string {
	var texts []string
	for _, b := range all[:min(len(all), maxNamed)] {
		texts = append(texts, b.message)
	}
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// ready returns condition Ready: true if nothing is left to do, and otherwise the condition that says what is.
func (l *view) ready(conditions []metav1.Condition) metav1.Condition {
	if l.halt != nil {
		return l.condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonReadOnly, runtime.Message(l.halt))
	}
	for _, c := range conditions {
		if !v1alpha1.PoolAsWanted(c) {
			return l.condition(v1alpha1.ConditionReady, false, v1alpha1.ConditionReason(c.Reason), c.Message)
		}
	}
	return l.condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAsWanted, "")
}
