package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

const (
	fieldOwner = shipping.FieldOwner
	// maxAside limits the text of an event about the active revision.
	maxAside = 250
	// reportPeriod is how often a status is confirmed, which takes one write per policy.
	reportPeriod = 5 * time.Minute
)

// Reconcile stores the active revision of one policy and updates its status. It does nothing for an object that the
// catalog has not observed yet.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	policy := &v1alpha1.RegoPolicy{}
	err := r.Live.Get(ctx, request.NamespacedName, policy)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading RegoPolicy %s: %w", request.Name, err)
	}
	state, ok := r.Catalog.State(policy.Name)
	if !ok || state.UID != policy.UID || state.Generation != policy.Generation || !policy.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // requeued when the catalog has observed this generation
	}
	stored := r.store(ctx, policy, state)
	again, err := r.show(ctx, policy, state)
	if apierrors.IsConflict(err) || apierrors.IsConflict(stored) || apierrors.IsAlreadyExists(stored) { // conflict: read again
		return ctrl.Result{RequeueAfter: firstRetry}, nil
	}
	if again == 0 {
		again = reportPeriod
	}
	return ctrl.Result{RequeueAfter: again}, errors.Join(stored, err)
}

// show writes the status if it has changed or must be confirmed, and then records events. It returns when to
// reconcile again, 0 for no sooner than the next confirmation.
func (r *Reconciler) show(ctx context.Context, policy *v1alpha1.RegoPolicy, state State) (again time.Duration, err error) {
	if state.Reads.Reason == v1alpha1.ReasonReadsNotSynced && state.Active == "" && policy.Status.ObservedGeneration == policy.Generation {
		return 0, nil // this replica has just started; the status is that of the previous leader
	}
	before := policy.DeepCopy()
	policy.Status.ObservedGeneration, policy.Status.ActiveRevision = policy.Generation, state.Active
	r.setConditions(policy, state)
	r.setTests(policy, state)
	r.setShipment(policy)
	r.setViolations(policy, state)
	again, unknown := r.setReady(ctx, before, policy, state)
	if equality.Semantic.DeepEqual(before.Status, policy.Status) && r.confirmed(policy) {
		return again, unknown
	}
	policy.Status.ReportedAt = ptr.To(metav1.NewTime(r.Now().Truncate(time.Second)))
	if err := r.Client.Status().Update(ctx, policy, client.FieldOwner(fieldOwner)); err != nil {
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, errors.Join(unknown, fmt.Errorf("writing the status of RegoPolicy %s: %w", policy.Name, err))
	}
	r.recordEvents(before, policy)
	return again, unknown
}

// confirmed reports whether the status was written recently. A time in the future, written by a fast clock, does not
// count: the status would be confirmed too late.
func (r *Reconciler) confirmed(policy *v1alpha1.RegoPolicy) bool {
	at := policy.Status.ReportedAt
	return at != nil && r.Now().Sub(at.Time).Abs() < reportPeriod
}

func (r *Reconciler) setConditions(policy *v1alpha1.RegoPolicy, state State) {
	r.setFinding(policy, v1alpha1.ConditionCompiled, state.Compiled)
	r.setFinding(policy, v1alpha1.ConditionReadsGranted, state.Reads)
	if state.Registered != nil {
		r.setFinding(policy, v1alpha1.ConditionRegistered, *state.Registered)
	}
	active, is := activity(policy, state), metav1.ConditionFalse
	switch active.Reason {
	case v1alpha1.ReasonCurrentRevision, v1alpha1.ReasonLastGoodRevision:
		is = metav1.ConditionTrue
	}
	r.set(policy, v1alpha1.ConditionActive, is, active)
}

// activity returns which revision is active.
func activity(policy *v1alpha1.RegoPolicy, state State) Finding {
	well := state.Compiled.Reason == v1alpha1.ReasonCompiled
	see := v1alpha1.ConditionCompiled
	if well {
		see = v1alpha1.ConditionReadsGranted
	}
	switch {
	case state.Library && well:
		return Finding{v1alpha1.ReasonCurrentRevision, "Policies that import this library use it."}
	case state.Library:
		return Finding{
			v1alpha1.ReasonNoGoodRevision,
			"Policies that import this library keep their last good revision, with the library as it was then. See condition Compiled.",
		}
	case state.LastGood:
		return Finding{
			v1alpha1.ReasonLastGoodRevision,
			fmt.Sprintf("The last good revision %s is active instead of the current one. See condition %s.", short(state.Active), see),
		}
	case state.Active != "":
		return Finding{v1alpha1.ReasonCurrentRevision, fmt.Sprintf("Revision %s is active.", short(state.Active))}
	}
	reason := v1alpha1.ReasonNoGoodRevision
	if state.Compiled.Reason == v1alpha1.ReasonLibraryMissing {
		reason = v1alpha1.ReasonLibraryMissing
	}
	whose := "requests that it matches"
	if state.Registered != nil && state.Registered.Reason == v1alpha1.ReasonNoGoodRevision {
		whose = "requests for Sallyport's own kinds that it matches" // it is not registered for other kinds
	}
	return Finding{reason, fmt.Sprintf("No revision is active: %s follow spec.onError, which is %s. See condition %s.",
		whose, policy.Spec.OnError, see)}
}

// setViolations sets the result of the last audit. Before the first audit of this process the old result stays.
func (r *Reconciler) setViolations(policy *v1alpha1.RegoPolicy, state State) {
	audited, reported := Finding{v1alpha1.ReasonAudited, "Every object that the policy matches was evaluated."}, state.Reported
	policy.Status.Auditing = state.Auditing
	switch {
	case policy.Spec.BackgroundAudit != v1alpha1.AuditEnabled:
		policy.Status.Violations, audited, reported = nil, Finding{}, &Finding{}
	case state.Violations == nil:
		return
	default:
		policy.Status.Violations = state.Violations
		if incomplete := state.Violations.Incomplete; incomplete != "" {
			audited = Finding{v1alpha1.ReasonAuditIncomplete, incomplete}
		}
	}
	r.setFinding(policy, v1alpha1.ConditionAudited, audited)
	if reported != nil {
		r.setFinding(policy, v1alpha1.ConditionReported, *reported)
	}
}

// setShipment sets the condition about the shipped policy, if its state is known.
func (r *Reconciler) setShipment(policy *v1alpha1.RegoPolicy) {
	s, is, known := r.shipment(policy.Name)
	switch {
	case !known, is && s.Reason == "":
		return
	case !is:
		meta.RemoveStatusCondition(&policy.Status.Conditions, string(v1alpha1.ConditionShipped))
		r.setEdits(policy, nil)
		return
	}
	status := metav1.ConditionFalse
	if s.Reason == v1alpha1.ReasonShipped {
		status = metav1.ConditionTrue
	}
	r.set(policy, v1alpha1.ConditionShipped, status, s.Finding)
	switch {
	case s.Reason == v1alpha1.ReasonNameTaken:
		r.setEdits(policy, nil)
	case s.shipped != nil:
		r.setEdits(policy, s.shipped)
	}
}

// The bounds of status.editedFields.
const mostEdited, longestEdited = 64, 1024

// setEdits lists the fields that differ from the shipped policy, none if it is not shipped.
func (r *Reconciler) setEdits(policy, shipped *v1alpha1.RegoPolicy) {
	policy.Status.EditedFields = nil
	if shipped == nil {
		meta.RemoveStatusCondition(&policy.Status.Conditions, string(v1alpha1.ConditionEdited))
		return
	}
	paths := shipping.Edited(policy, shipped)
	if len(paths) == 0 {
		r.set(policy, v1alpha1.ConditionEdited, metav1.ConditionFalse, Finding{v1alpha1.ReasonAsShipped, "All fields are as shipped."})
		return
	}
	for _, path := range paths[:min(len(paths), mostEdited)] {
		policy.Status.EditedFields = append(policy.Status.EditedFields, v1alpha1.Cut(path, longestEdited))
	}
	r.set(policy, v1alpha1.ConditionEdited, metav1.ConditionTrue, Finding{v1alpha1.ReasonFieldsEdited, fmt.Sprintf(
		"Edited fields: %s. To reset them: %s", strings.Join(paths, ", "), commands.Line("kubectl", "sallyport", "policies", "reset", policy.Name),
	)})
}

func (r *Reconciler) setFinding(policy *v1alpha1.RegoPolicy, t v1alpha1.ConditionType, f Finding) {
	switch f.Reason {
	case "":
		meta.RemoveStatusCondition(&policy.Status.Conditions, string(t))
	case v1alpha1.ReasonCompiled, v1alpha1.ReasonReadsGranted:
		f.Message = cmp.Or(f.Message, well(policy, f.Reason))
		r.set(policy, t, metav1.ConditionTrue, f)
	case v1alpha1.ReasonRegistered, v1alpha1.ReasonAudited, v1alpha1.ReasonReported:
		r.set(policy, t, metav1.ConditionTrue, f)
	case v1alpha1.ReasonReadsNotSynced:
		r.set(policy, t, metav1.ConditionUnknown, f)
	default:
		r.set(policy, t, metav1.ConditionFalse, f)
	}
}

// well returns the message for a finding without problems.
func well(policy *v1alpha1.RegoPolicy, reason v1alpha1.ConditionReason) string {
	switch {
	case reason == v1alpha1.ReasonCompiled:
		return "The policy compiles."
	case len(policy.Spec.Reads) == 0:
		return "The policy reads nothing from the cluster: spec.reads is empty."
	}
	return "Every kind in spec.reads can be read."
}

func (r *Reconciler) set(policy *v1alpha1.RegoPolicy, t v1alpha1.ConditionType, status metav1.ConditionStatus, f Finding) {
	v1alpha1.SetCondition(&policy.Status.Conditions, t.Condition(status, f.Reason, policy.Generation, f.Message), r.Now())
}

func short(revision string) string { return revision[:min(len(revision), 10)] }
