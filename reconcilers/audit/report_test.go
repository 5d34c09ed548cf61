package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// reportingOver is a reconciler that also reports, to a cluster with the kinds of reports.
func reportingOver(t *testing.T, objects ...client.Object) (*Reconciler, *paged) {
	t.Helper()
	r, p := reconcilerOver(t, objects...)
	if err := openreports.Install(p.Scheme()); err != nil {
		t.Fatal(err)
	}
	r.Reports = &reports.Writer{Client: p.WithWatch, Live: p.WithWatch, Now: r.Now}
	return r, p
}

// reported are the names of the objects that the report in a namespace is about.
func reported(t *testing.T, c client.Client, namespace string) (names []string) {
	t.Helper()
	report := &openreports.Report{}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "sallyport-owners"}, report)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	for i := range report.Results {
		names = append(names, report.Results[i].Subjects[0].Name)
	}
	return names
}

func TestReportsFollowAudits(t *testing.T) {
	changed := func(change func(*v1alpha1.RegoPolicy)) func(*testing.T, *Reconciler, *paged) {
		return func(t *testing.T, _ *Reconciler, p *paged) {
			t.Helper()
			stored := policy(nil)
			err := p.Get(t.Context(), client.ObjectKeyFromObject(stored), stored)
			if change(stored); err == nil {
				err = p.Update(t.Context(), stored)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	const kept = "d"
	for name, c := range map[string]struct {
		then func(*testing.T, *Reconciler, *paged)
		want []string
	}{
		"nothing happens": {func(*testing.T, *Reconciler, *paged) {}, []string{kept}},
		"mended": {func(t *testing.T, _ *Reconciler, p *paged) {
			t.Helper()
			if err := p.Update(t.Context(), deployment("a", kept, "me")); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"its report is edited": {func(t *testing.T, _ *Reconciler, p *paged) {
			t.Helper()
			edited := &openreports.Report{}
			err := p.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "sallyport-owners"}, edited)
			if edited.Results = nil; err == nil {
				err = p.Update(t.Context(), edited)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, []string{kept}},
		"its report is deleted": {func(t *testing.T, _ *Reconciler, p *paged) {
			t.Helper()
			err := p.Delete(t.Context(), &openreports.Report{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "sallyport-owners"}})
			if err != nil {
				t.Fatal(err)
			}
		}, []string{kept}},
		"not wanted any more": {changed(func(p *v1alpha1.RegoPolicy) { p.Spec.BackgroundAudit = v1alpha1.AuditDisabled }), nil},
		"a library now":       {changed(func(p *v1alpha1.RegoPolicy) { p.Spec.Match = nil }), nil},
		"deleted": {func(t *testing.T, _ *Reconciler, p *paged) {
			t.Helper()
			if err := p.Delete(t.Context(), policy(nil)); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"nothing decides at the moment": {func(_ *testing.T, r *Reconciler, _ *paged) { r.Evaluator = byLabel{} }, []string{kept}},
		"the list breaks off": {func(_ *testing.T, _ *Reconciler, p *paged) {
			p.fail = func(int) error { return errors.New("connection refused") }
		}, []string{kept}},
		"it may not be listed any more": {func(_ *testing.T, r *Reconciler, p *paged) {
			p.fail = func(int) error {
				return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("x").GroupResource(), "", nil)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := reportingOver(t, policy(nil), deployment("a", kept, ""), deployment("a", "fine", "me"))
			audit(t, r)
			if got := reported(t, p.WithWatch, "a"); !slices.Equal(got, []string{kept}) {
				t.Fatalf("the report is about %v", got)
			}
			if f := r.Reported("owners"); f == nil || *f != (Finding{v1alpha1.ReasonReported, "Reports: 1, with 1 results."}) {
				t.Errorf("it says %+v", f)
			}
			c.then(t, r, p)
			audit(t, r)
			if got := reported(t, p.WithWatch, "a"); !slices.Equal(got, c.want) {
				t.Errorf("the report is about %v, want %v", got, c.want)
			}
		})
	}
}

// What an audit has not looked at is not in order for that, and is looked at again before long.
func TestReportsStayWhereAnAuditBreaksOff(t *testing.T) {
	r, p := reportingOver(t, policy(nil), deployment("a", "d", ""))
	p.fail = func(int) error { return errors.New("connection refused") }
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}})
	if err != nil || result.RequeueAfter != lastRetry {
		t.Errorf("again after %v, error %v", result.RequeueAfter, err)
	}
	if f := r.Reported("owners"); f == nil || f.Reason != v1alpha1.ReasonAuditIncomplete {
		t.Errorf("it says %+v", f)
	}
	r.Interval = 0
	if result, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}}); err != nil || result.RequeueAfter != 0 {
		t.Errorf("on changes only, and again after %v, error %v", result.RequeueAfter, err)
	}
}

func TestWhatCannotBeReportedIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		fail   error
		again  time.Duration
		failed bool
		want   v1alpha1.ConditionReason
	}{
		"written meanwhile": {apierrors.NewConflict(openreports.Resource("reports"), "x", nil), 0, true, v1alpha1.ReasonReportsFailed},
		"refused":           {apierrors.NewForbidden(openreports.Resource("reports"), "x", errors.New("exceeded quota")), time.Hour, false, v1alpha1.ReasonReportsFailed},
		"nobody answers":    {errors.New("connection refused"), 0, true, v1alpha1.ReasonReportsFailed},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := reportingOver(t, policy(nil), deployment("a", "d", ""))
			r.Reports.Client = interceptor.NewClient(p.WithWatch, interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					return c.fail
				},
			})
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}})
			if result.RequeueAfter != c.again || (err != nil) != c.failed {
				t.Errorf("again after %v, error %v", result.RequeueAfter, err)
			}
			if f := r.Reported("owners"); f == nil || f.Reason != c.want {
				t.Errorf("it says %+v", f)
			}
			if v := r.Violations("owners"); v == nil || counted(v) != 1 {
				t.Errorf("what was found is still known: %+v", v)
			}
		})
	}
}

// The message stays the same while nothing changes, however much there is.
func TestWhatReportsLackIsCounted(t *testing.T) {
	many := slices.Repeat([]string{"Report a/b"}, 7)
	for want, w := range map[string]reports.Written{
		"Reports: 2, with 3 results.": {Reports: 2, Results: 3},
		"Reports: 2, with 3 results. Limits are exceeded: 5 results are only counted, and 1 namespaces have no report.":                 {Reports: 2, Results: 3, ReportsLeftOut: 1, ResultsLeftOut: 5},
		"Reports: 0, with 0 results. The API server rejects Report a/b: no":                                                             {Refused: []string{"Report a/b: no"}},
		"These objects have another owner and are left alone: " + strings.Join(many[:5], "; ") + "; and 2 more. Rename or delete them.": {Taken: many},
	} {
		if got := found(&w).Message; !strings.HasSuffix(got, want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

// The kinds of reports may come later. That they are missing is logged once, and what waits for them is audited again.
func TestPoliciesWaitForTheKindsOfReports(t *testing.T) {
	r, p := reportingOver(t, policy(nil), deployment("a", "d", ""))
	var served atomic.Bool
	r.Reports.Live = interceptor.NewClient(p.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if !served.Load() {
				return &meta.NoKindMatchError{GroupKind: openreports.SchemeGroupVersion.WithKind("Report").GroupKind()}
			}
			return c.List(ctx, list, options...)
		},
	})
	logged := 0
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, text string) {
		if strings.Contains(text, "does not have the kinds Report and ClusterReport") {
			logged++
		}
	}, funcr.Options{}))
	for range 2 {
		if result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}}); err != nil || result.RequeueAfter != time.Hour {
			t.Fatal(result, err)
		}
	}
	if f := r.Reported("owners"); f == nil || f.Reason != v1alpha1.ReasonReportsNotServed || logged != 1 || counted(r.Violations("owners")) != 1 {
		t.Errorf("it says %+v, logged %d times", f, logged)
	}
	if names := r.served(ctx); len(names) > 0 {
		t.Errorf("%v are to be audited for kinds that there are not", names)
	}
	served.Store(true)
	r.Look = time.Millisecond
	r.due = make(chan event.GenericEvent)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- r.await(ctx) }()
	if e := <-r.due; e.Object.GetName() != "owners" {
		t.Errorf("audited is %s", e.Object.GetName())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	audit(t, r)
	if got := reported(t, p.WithWatch, "a"); !slices.Equal(got, []string{"d"}) || len(r.served(t.Context())) > 0 {
		t.Errorf("the report is about %v, and still waiting are %v", got, r.awaiting)
	}
}
