package audit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// Reports that somebody changes are put right at once. Who changes them again is given more and more time, up to lastRetry, so
// that two who disagree do not keep the API server busy; it is a quarrel from the third time on, and over after some peace.
const (
	quarrel = 3
	peace   = 2 * lastRetry
)

// edits are what others have done to the reports about a policy of late.
type edits struct {
	count   int
	last    time.Time
	pending bool // an audit that puts them right is due
	what    reports.Edit
}

// edited notes that a report about a policy was changed, and tells how long to wait before it is put right; due is false if that
// is under way.
func (r *Reconciler) edited(of reports.Edit) (wait time.Duration, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, now := r.edits[of.Policy], r.Now()
	switch {
	case e == nil && r.edits == nil:
		r.edits = map[string]*edits{}
		fallthrough
	case e == nil || now.Sub(e.last) > peace:
		e = &edits{}
		r.edits[of.Policy] = e
	case e.pending:
		return 0, false
	}
	e.count, e.last, e.pending = e.count+1, now, true
	if of.Report != "" || e.what.Report == "" {
		e.what = of
	}
	if e.count > 1 {
		wait = min(firstRetry<<min(e.count-2, 20), lastRetry)
	}
	return wait, true
}

// attends notes that an audit begins which puts right what was changed before.
func (r *Reconciler) attends(policy string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.edits[policy]; e != nil {
		e.pending = false
	}
}

// quarrels gives what is to be said of the reports about a policy which others keep changing, nil if nobody does.
func (r *Reconciler) quarrels(policy string) *Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.edits[policy]
	if e == nil || e.count < quarrel || r.Now().Sub(e.last) > peace {
		return nil
	}
	last := cmp.Or(e.what.Report, "one of them")
	if e.what.By != "" {
		last += fmt.Sprintf(" by %q", e.what.By)
	}
	return &Finding{v1alpha1.ReasonReportsEdited, cut(fmt.Sprintf("Other clients keep changing these reports, most recently %s. Sallyport restores them after "+
		"increasing delays of up to %v, so they can be out of date; status.violations is current. To find the client, see "+
		"the managedFields of the report or the audit log of the API server.", last, lastRetry), maxIncomplete)}
}

// watch has policies audited again whose reports somebody else changes.
func (r *Reconciler) watch(ctx context.Context, due chan<- event.GenericEvent) {
	err := r.Reports.Watch(ctx, func(of reports.Edit) {
		wait, is := r.edited(of)
		if !is {
			return
		}
		log.FromContext(ctx).Info("a report was changed or deleted, and is restored", "RegoPolicy", of.Policy, "report", of.Report,
			"manager", of.By, "after", wait)
		if finding := r.quarrels(of.Policy); finding != nil {
			r.says(of.Policy, finding)
		}
		time.AfterFunc(wait, func() { r.send(ctx, due, of.Policy) })
	})
	if err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "reports are not watched: the next audit restores edited reports")
	}
}

// send has a policy audited.
func (r *Reconciler) send(ctx context.Context, due chan<- event.GenericEvent, policy string) {
	select {
	case <-ctx.Done():
	case due <- event.GenericEvent{Object: &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}}}:
	}
}

// says changes what is said of the reports about a policy, if anything is.
func (r *Reconciler) says(policy string, finding *Finding) {
	r.mu.Lock()
	of, was := r.results[policy]
	if was {
		of.reported = finding
		r.results[policy] = of
	}
	r.mu.Unlock()
	if was && r.Found != nil {
		r.Found(policy)
	}
}
