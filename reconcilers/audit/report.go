package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// Finding is the state of the reports about a policy. Without a reason, there must be no reports.
type Finding struct {
	Reason  v1alpha1.ConditionReason
	Message string
}

// open reads the existing reports of a policy; it returns nil without Reports. The error is reports.ErrNotServed if the cluster does
// not serve the report kinds.
func (r *Reconciler) open(ctx context.Context, policy string) (*reports.Book, error) {
	if r.Reports == nil {
		return nil, nil
	}
	book, err := r.Reports.Open(ctx, policy)
	r.setAwaiting(ctx, policy, errors.Is(err, reports.ErrNotServed))
	return book, err
}

// unreport deletes the reports about a policy that is no longer audited.
func (r *Reconciler) unreport(ctx context.Context, policy string) (ctrl.Result, error) {
	if r.Reports == nil {
		return ctrl.Result{}, nil
	}
	r.setAwaiting(ctx, policy, false)
	return ctrl.Result{}, r.Reports.Remove(ctx, policy)
}

// report writes the reports and returns their state. After an error the audit is repeated.
func (r *Reconciler) report(
	ctx context.Context, policy *v1alpha1.RegoPolicy, f *findings, incomplete string, book *reports.Book, page *reports.Page, unserved error,
) (*Finding, error) {
	switch {
	case r.Reports == nil:
		return &Finding{}, nil
	case unserved != nil:
		return &Finding{v1alpha1.ReasonReportsNotServed, unserved.Error() + ": install their CustomResourceDefinitions; reports are then written immediately."}, nil
	case f.ended: // an object that was not evaluated must not lose its results
		return &Finding{v1alpha1.ReasonAuditIncomplete, "The reports are those of the previous audit. See condition Audited."}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("writing reports took longer than %v", patience))
	defer cancel()
	written, err := book.Write(ctx, policy, page, incomplete)
	if err != nil {
		return &Finding{v1alpha1.ReasonReportsFailed, cut(err.Error(), maxIncomplete)}, err
	}
	return found(written), nil
}

// found describes what was written. The text has no times or identifiers, so that the condition changes only with the results.
func found(w *reports.Written) *Finding {
	some := func(texts []string) string {
		text := strings.Join(texts[:min(len(texts), 5)], "; ")
		if more := len(texts) - 5; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		return cut(text, maxIncomplete)
	}
	text := fmt.Sprintf("Reports: %d, with %d results.", w.Reports, w.Results)
	if w.ResultsLeftOut+w.ReportsLeftOut > 0 {
		text += fmt.Sprintf(" Limits are exceeded: %d results are only counted, and %d namespaces have no report.", w.ResultsLeftOut, w.ReportsLeftOut)
	}
	switch {
	case len(w.Taken) > 0:
		return &Finding{v1alpha1.ReasonReportNameTaken, text + " These objects have another owner and are left alone: " + some(w.Taken) + ". Rename or delete them."}
	case len(w.Refused) > 0:
		return &Finding{v1alpha1.ReasonReportsFailed, text + " The API server rejects " + some(w.Refused)}
	}
	return &Finding{v1alpha1.ReasonReported, text}
}

// setAwaiting records whether a policy waits for the report kinds.
func (r *Reconciler) setAwaiting(ctx context.Context, policy string, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !is {
		delete(r.awaiting, policy)
		return
	}
	if len(r.awaiting) == 0 {
		log.FromContext(ctx).Info(reports.ErrNotServed.Error() + ": no reports are written until it has")
		r.awaiting = map[string]bool{}
	}
	r.awaiting[policy] = true
}

// await requests audits of the waiting policies once the cluster serves the report kinds.
func (r *Reconciler) await(ctx context.Context) error {
	for ticker := time.Tick(r.Look); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker:
		}
		r.repeat(ctx, r.served(ctx))
	}
}

// served returns the waiting policies once the report kinds are served. It returns a policy again until its audit has begun.
func (r *Reconciler) served(ctx context.Context) (names []string) {
	r.mu.Lock()
	for name := range r.awaiting {
		names = append(names, name)
	}
	r.mu.Unlock()
	if len(names) == 0 || r.Reports.Served(ctx) != nil {
		return nil
	}
	slices.Sort(names)
	return names
}
