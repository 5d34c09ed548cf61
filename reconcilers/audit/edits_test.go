package audit

import (
	"strings"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// Who keeps changing reports is given more and more time before they are put right, and is told of; in the end there is peace.
func TestQuarrelsOverReportsAreBounded(t *testing.T) {
	r, _ := reportingOver(t, policy(nil), deployment("a", "d", ""))
	now := r.Now()
	r.Now = func() time.Time { return now }
	r.Reports.Now = r.Now
	told := 0
	r.Found = func(string) { told++ }
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	reconcile()
	edit := reports.Edit{Policy: "owners", Report: "Report a/sallyport-owners", By: "kubectl-edit"}
	audits, total := 0, time.Duration(0)
	for i := range 100 {
		wait, due := r.edited(edit)
		if _, again := r.edited(edit); !due || again {
			t.Fatalf("edit %d: due %v, and once more %v", i, due, again)
		}
		if i == 0 && wait != 0 {
			t.Errorf("the first edit waits %v", wait)
		}
		now = now.Add(wait)
		total += wait
		audits++
		result := reconcile()
		reason := r.Reported("owners").Reason
		switch {
		case i < quarrel-1 && (reason != v1alpha1.ReasonReported || result.RequeueAfter != time.Hour):
			t.Errorf("edit %d: it says %s, and is audited again after %v", i, reason, result.RequeueAfter)
		case i >= quarrel-1 && (reason != v1alpha1.ReasonReportsEdited || result.RequeueAfter != peace+firstRetry):
			t.Errorf("edit %d: it says %s, and is audited again after %v", i, reason, result.RequeueAfter)
		}
	}
	if slowest := total / time.Duration(audits); slowest < lastRetry*8/10 {
		t.Errorf("a hundred edits had audits every %v", slowest)
	}
	if text := r.Reported("owners").Message; !strings.Contains(text, `most recently Report a/sallyport-owners by "kubectl-edit"`) {
		t.Errorf("it says %q", text)
	}
	now = now.Add(peace + firstRetry)
	if result := reconcile(); r.Reported("owners").Reason != v1alpha1.ReasonReported || result.RequeueAfter != time.Hour {
		t.Errorf("in peace it says %+v", r.Reported("owners"))
	}
	if wait, due := r.edited(edit); wait != 0 || !due {
		t.Errorf("after the peace an edit waits %v", wait)
	}
	before := told
	for _, name := range []string{"owners", "unknown"} {
		r.says(name, &Finding{Reason: v1alpha1.ReasonReportsEdited})
	}
	if told != before+1 || r.Reported("owners").Reason != v1alpha1.ReasonReportsEdited {
		t.Errorf("findings between audits were told %d times: %+v", told-before, r.Reported("owners"))
	}
}
