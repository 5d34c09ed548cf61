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
func (r *Reconciler) save(ctx context.Context, v *view) error {
	v.updateStatus()
	changed, err := persist.Status(ctx, r.Client, v.pool, v.before, &v.pool.Status)
	if changed {
		v.before = v.pool.Status.DeepCopy()
	}
	return err
}

// updateStatus derives the status from the members and the results of the pass.
func (v *view) updateStatus() {
	status := &v.pool.Status
	status.ObservedGeneration = v.pool.Generation
	status.DesiredTemplateHash = v.hash
	status.Selector = v1alpha1.LabelPoolUID + "=" + string(v.pool.UID)
	status.Replicas, status.ReadyReplicas, status.StoppedReplicas, status.UpdatedReplicas, status.RestartPendingReplicas = int32(len(v.members)), 0, 0, 0, 0
	for _, m := range v.remaining() {
		if m.ready() {
			status.ReadyReplicas++
		}
		if m.stopped() {
			status.StoppedReplicas++
		}
		if m.Labels[v1alpha1.LabelTemplateHash] == v.hash {
			if !v.otherRelease(m) {
				status.UpdatedReplicas++
			}
			if m.restartRequired() {
				status.RestartPendingReplicas++
			}
		}
	}
	conditions := []metav1.Condition{v.available(), v.progressing(), v.synced()}
	for _, c := range append(conditions, v.scaleDownBlocked(), v.ready(conditions)) {
		v1alpha1.SetCondition(&status.Conditions, c, v.now)
	}
}

func (v *view) condition(t v1alpha1.ConditionType, is bool, reason v1alpha1.ConditionReason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return t.Condition(status, reason, v.pool.Generation, message)
}

func (v *view) available() metav1.Condition {
	ready, stopped, t := int(v.pool.Status.ReadyReplicas), int(v.pool.Status.StoppedReplicas), v1alpha1.ConditionAvailable
	switch {
	case ready >= v.desired():
		return v.condition(t, true, v1alpha1.ReasonAllReplicasReady, "")
	case ready+stopped >= v.desired():
		return v.condition(t, false, v1alpha1.ReasonMembersStopped,
			fmt.Sprintf("%d of %d members are off, as their run policy or the last request wants it", stopped, len(v.members)))
	}
	return v.condition(t, false, v1alpha1.ReasonInsufficientReadyReplicas, fmt.Sprintf("%d of %d members are ready", ready, v.desired())+v.needHelp())
}

func (v *view) needHelp() (text string) {
	for _, of := range []struct {
		what, wayOut string
		is           func(member) bool
	}{
		{"lost", commands.Line("kubectl", "delete", "svm", "NAME", "-n", v.pool.Namespace) + " replaces one", member.lost},
		{"held back", commands.Line("kubectl", "sallyport", "why", "svm", "NAME", "-n", v.pool.Namespace), member.ownedByAnother},
	} {
		var names []string
		for _, m := range v.remaining() {
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

func (v *view) progressing() metav1.Condition {
	t := v1alpha1.ConditionProgressing
	switch {
	case v.halt != nil:
		return v.condition(t, false, v1alpha1.ReasonReadOnly, runtime.Message(v.halt))
	case v.createErr != nil:
		return v.condition(t, false, v1alpha1.ReasonFailedCreate, v.createErr.Error())
	case len(v.blocked) > 0:
		return v.condition(t, false, v.blocked[0].reason, blockedMessage(v.blocked))
	case len(v.members) != v.desired():
		return v.condition(t, true, v1alpha1.ReasonReplicasProgressing, fmt.Sprintf("%d of %d members exist", len(v.members), v.desired()))
	}
	return v.condition(t, false, v1alpha1.ReasonSteady, "")
}

func (v *view) synced() metav1.Condition {
	t, all, stale, pending := v1alpha1.ConditionSynced, len(v.remaining()), len(v.staleMembers()), v.pool.Status.RestartPendingReplicas
	var other string
	if stale > 0 {
		other = fmt.Sprintf("%d of %d members are not at release %s of VSphereTemplate %s", stale, all, v.release, v.pool.Spec.Follows().Name)
	}
	switch outdated := len(v.outdated()); {
	case v.updateErr != nil:
		return v.condition(t, false, v1alpha1.ReasonRolloutFailed, v.updateErr.Error())
	case len(v.notReplaced) > 0:
		return v.condition(t, false, v.notReplaced[0].reason, other+": "+blockedMessage(v.notReplaced))
	case stale > 0 && v.restartsAutomatically():
		return v.condition(t, false, v1alpha1.ReasonRolloutInProgress, other)
	case outdated > 0:
		return v.condition(t, false, v1alpha1.ReasonRolloutInProgress, fmt.Sprintf("%d of %d members have an earlier template", outdated, all))
	case stale > 0:
		return v.condition(t, false, v1alpha1.ReasonRestartPendingApproval,
			other+"; restartApprovalMode is Manual: delete a member to replace it (kubectl delete svm NAME)")
	case pending > 0:
		return v.condition(t, false, v1alpha1.ReasonRestartPendingApproval,
			fmt.Sprintf("%d of %d members need a restart (kubectl sallyport restart NAME)", pending, all))
	}
	return v.condition(t, true, v1alpha1.ReasonPoolSynced, "")
}

func (v *view) scaleDownBlocked() metav1.Condition {
	t := v1alpha1.ConditionScaleDownBlocked
	if len(v.blocked) == 0 {
		return v.condition(t, false, v1alpha1.ReasonNotBlocked, "")
	}
	return v.condition(t, true, v.blocked[0].reason, blockedMessage(v.blocked))
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
func (v *view) ready(conditions []metav1.Condition) metav1.Condition {
	if v.halt != nil {
		return v.condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonReadOnly, runtime.Message(v.halt))
	}
	for _, c := range conditions {
		if !v1alpha1.PoolAsWanted(c) {
			return v.condition(v1alpha1.ConditionReady, false, v1alpha1.ConditionReason(c.Reason), c.Message)
		}
	}
	return v.condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAsWanted, "")
}
