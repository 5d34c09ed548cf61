package manager

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/reconcilers/audit"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
	"sallyport.dev/sallyport/webhooks/decision"
)

// reportsLook is how often to check whether a cluster has the kinds of reports.
const reportsLook = 10 * time.Second

// addAudit adds the audit of existing objects, which runs in the leader.
func (o *Options) addAudit(
	mgr ctrl.Manager, gate *decision.Decider, kept *keeper.Keeper, reads *policyReads, namespace string, found func(policy string),
) (*audit.Reconciler, error) {
	r := &audit.Reconciler{
		Live: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(), Evaluator: evaluator{gate, kept},
		Exempt:  []string{metav1.NamespaceSystem, namespace}, // where no policy is registered for foreign kinds
		Changed: kept.Subscribe(), Interval: o.AuditInterval, Notify: found, Nameless: !o.AuditNames, Now: time.Now,
		MayRead: reads.Allow,
	}
	if o.AuditReports {
		r.Reports, r.Look = &reports.Writer{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: time.Now}, reportsLook
	}
	if err := r.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up the audit of existing objects: %w", err)
	}
	return r, nil
}

// evaluator adapts the gate to the audit, which does not depend on the webhooks.
type evaluator struct {
	gate *decision.Decider
	kept *keeper.Keeper
}

func (e evaluator) Evaluate(
	ctx context.Context, policy string, resource schema.GroupVersionResource, object *unstructured.Unstructured,
) (audit.Evaluation, error) {
	audited, err := e.gate.Audit(ctx, policy, resource, object)
	result := audit.Evaluation{Asked: audited.Asked, Mode: audited.Mode}
	for _, d := range audited.Denials {
		result.Violations = append(result.Violations, audit.Violation{Reason: d.Reason, Message: d.WithRemedy()})
	}
	return result, err
}

func (e evaluator) Revision(policy string) string {
	state, _ := e.kept.State(policy)
	return state.ActiveHash
}
