package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// byLabel has something against objects without the label owner, and cannot judge those whose owner is "?".
type byLabel struct{ revision string }

func (byLabel) Evaluate(_ context.Context, _ string, _ schema.GroupVersionResource, o *unstructured.Unstructured) (Evaluation, error) {
	evaluated := Evaluation{Asked: true, Mode: v1alpha1.ModeEnforce}
	switch owner := o.GetLabels()["owner"]; {
	case o.GetNamespace() == "unasked":
		return Evaluation{}, nil
	case owner == "?":
		return evaluated, errors.New("cannot tell")
	case owner != "":
		return evaluated, nil
	}
	evaluated.Violations = []Violation{{"OwnerMissing", "label owner is missing" + strings.Repeat("!", 600)}}
	return evaluated, nil
}

func (j byLabel) Revision(string) string { return j.revision }

// paged serves lists in pages of the size that is asked for, as the API server does and the fake client does not.
type paged struct {
	client.WithWatch
	fail func(page int) error // of a list
	mu   sync.Mutex           // of page
	page int
}

func (p *paged) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	p.mu.Lock()
	p.page++
	page := p.page
	p.mu.Unlock()
	if p.fail != nil {
		if err := p.fail(page); err != nil {
			return err
		}
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	from := 0
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &from); err != nil {
			return err
		}
	}
	if err := p.WithWatch.List(ctx, list); err != nil {
		return err
	}
	items := list.(*unstructured.UnstructuredList).Items
	to := min(len(items), from+int(o.Limit))
	if list.SetContinue(""); to < len(items) {
		list.SetContinue(fmt.Sprint(to))
	}
	list.(*unstructured.UnstructuredList).Items = items[from:to]
	return nil
}

func policy(change func(*v1alpha1.RegoPolicySpec)) *v1alpha1.RegoPolicy {
	p := &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "owners"}, Spec: v1alpha1.RegoPolicySpec{
		BackgroundAudit: v1alpha1.AuditEnabled,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"deployments", "deployments/scale"},
			Operations: []v1alpha1.MatchOperation{v1alpha1.MatchCreate, v1alpha1.MatchUpdate},
		}}},
	}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func deployment(namespace, name, owner string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if owner != "" {
		d.Labels = map[string]string{"owner": owner}
	}
	return d
}

func reconcilerOver(t *testing.T, objects ...client.Object) (*Reconciler, *paged) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	p := &paged{WithWatch: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	return &Reconciler{
		Live: p, Mapper: mapper, Evaluator: byLabel{"r1"}, Exempt: []string{"kube-system"}, Interval: time.Hour,
		Now: func() time.Time { return time.Date(2026, 11, 21, 10, 0, 0, 5, time.UTC) },
	}, p
}

func audit(t *testing.T, r *Reconciler) *v1alpha1.PolicyViolations {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}}); err != nil {
		t.Fatal(err)
	}
	return r.Violations("owners")
}

// counted is how many there are, -1 if that is not known.
func counted(v *v1alpha1.PolicyViolations) int32 {
	if v == nil {
		return -1
	}
	return ptr.Deref(v.Count, -1)
}

func TestAnAuditCountsAllAndShowsTheFirst(t *testing.T) {
	objects := []client.Object{
		policy(nil), deployment("a", "fine", "me"), deployment("b", "odd", "?"), deployment("kube-system", "dns", ""), deployment("unasked", "x", ""),
	}
	for i := range 2 * pageSize {
		objects = append(objects, deployment("c", fmt.Sprintf("d-%04d", i), ""))
	}
	going := deployment("c", "going", "")
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"sallyport.dev/test"}
	r, p := reconcilerOver(t, append(objects, going)...)
	got := audit(t, r)
	want := &v1alpha1.PolicyViolations{
		AuditedAt: metav1.NewTime(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)), Revision: "r1",
		Objects: 2*pageSize + 2, AtLeast: 2 * pageSize, Undecided: 1, Incomplete: "evaluating Deployment b/odd: cannot tell",
	}
	if len(got.First) != firstFew || got.First[0].Name != "d-0000" || len(got.First[0].Message) != maxMessage {
		t.Errorf("the first are %+v", got.First)
	}
	got.First = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if p.page != 3 {
		t.Errorf("%d pages were read, and there are 3", p.page)
	}
}

func TestAListThatExpiresIsBegunAnew(t *testing.T) {
	objects := []client.Object{policy(nil)}
	for i := range pageSize + 1 {
		objects = append(objects, deployment("c", fmt.Sprintf("d-%04d", i), ""))
	}
	r, p := reconcilerOver(t, objects...)
	p.fail = func(page int) error {
		if page == 2 {
			return apierrors.NewResourceExpired("too old")
		}
		return nil
	}
	if got := audit(t, r); got.Objects != pageSize+1 || counted(got) != pageSize+1 || len(got.First) != firstFew || got.Incomplete != "" {
		t.Errorf("found %d of %d objects, first %d, %q", counted(got), got.Objects, len(got.First), got.Incomplete)
	}
}

func TestWhatCannotBeLookedAtIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.RegoPolicySpec)
		fail   error
		want   string
	}{
		"forbidden": {
			fail: apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "", errors.New("no")),
			want: "Sallyport may not list deployments.apps; to grant access, add {deployments.apps: true} to the chart value rbac.reads",
		},
		"away": {fail: errors.New("connection refused"), want: "listing deployments.apps: connection refused"},
		"wildcard": {
			change: func(s *v1alpha1.RegoPolicySpec) { s.Match.Resources[0].Resources = []string{"*"} },
			want:   "spec.match.resources[0] has a wildcard: only groups and resources that it names are audited",
		},
		"unknown": {
			change: func(s *v1alpha1.RegoPolicySpec) { s.Match.Resources[0].Resources = []string{"gadgets"} },
			want:   "the cluster has no gadgets.apps",
		},
		"connections": {
			change: func(s *v1alpha1.RegoPolicySpec) {
				s.Match.Resources[0].Operations = []v1alpha1.MatchOperation{v1alpha1.MatchDelete, v1alpha1.MatchConnect}
			},
			want: "spec.match names no resource with CREATE: no object is held against the policy, set spec.backgroundAudit to Disabled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := reconcilerOver(t, policy(c.change), deployment("a", "b", ""))
			p.fail = func(int) error { return c.fail }
			if got := audit(t, r); got.Incomplete != c.want || got.Count != nil || got.AtLeast != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// What an audit finds tells of the objects, so it looks only at those that the policy may read.
func TestOnlyWhatThePolicyMayReadIsAudited(t *testing.T) {
	for may, want := range map[bool]string{
		true: "", false: "Sallyport may not list deployments.apps; to grant access, add {deployments.apps: true} to the chart value rbac.reads",
	} {
		r, _ := reconcilerOver(t, policy(nil), deployment("a", "b", ""))
		r.MayRead = func(policy, group, resource string) bool {
			return may && policy == "owners" && group == "apps" && resource == "deployments"
		}
		if got := audit(t, r); got.Incomplete != want || (len(got.First) == 1) != may {
			t.Errorf("may read: %v: got %+v", may, got)
		}
	}
}

// A grant repeats the audits that lacked it, and no other.
func TestAGrantRepeatsAudits(t *testing.T) {
	for _, barred := range []bool{true, false} {
		r, _ := reconcilerOver(t, policy(nil), deployment("a", "b", ""))
		r.due = make(chan event.GenericEvent, 1)
		r.MayRead = func(string, string, string) bool { return !barred }
		audit(t, r)
		r.Granted(t.Context())
		if repeated := len(r.due) == 1; repeated != barred {
			t.Errorf("barred: %t, repeated: %t", barred, repeated)
		}
	}
}

// slowly judges each object for longer than a whole audit may take, and gives up with its context.
type slowly struct{ byLabel }

func (s slowly) Evaluate(ctx context.Context, _ string, _ schema.GroupVersionResource, _ *unstructured.Unstructured) (Evaluation, error) {
	time.Sleep(patience + time.Second)
	return Evaluation{}, ctx.Err()
}

// An audit that takes too long says so, and nothing of the objects that it has not looked at.
func TestAnAuditThatTakesTooLong(t *testing.T) {
	for name, slow := range map[string]func(*Reconciler, *paged){
		"to list": func(_ *Reconciler, p *paged) {
			p.fail = func(int) error { time.Sleep(patience + time.Second); return context.DeadlineExceeded }
		},
		"to judge": func(r *Reconciler, _ *paged) { r.Evaluator = slowly{byLabel{"r1"}} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := reconcilerOver(t, policy(nil), deployment("a", "b", ""))
				slow(r, p)
				if got := audit(t, r); got.Incomplete != "listing deployments.apps: the audit took longer than 10m0s" || got.Count != nil {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

func TestAPolicyThatDoesNotWantItIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*v1alpha1.RegoPolicySpec)
		deleted  bool
		revision string
	}{
		"disabled":            {func(s *v1alpha1.RegoPolicySpec) { s.BackgroundAudit = v1alpha1.AuditDisabled }, false, "r1"},
		"library":             {func(s *v1alpha1.RegoPolicySpec) { s.Match = nil }, false, "r1"},
		"being deleted":       {nil, true, "r1"},
		"of which none works": {nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := reconcilerOver(t, policy(nil), deployment("a", "b", ""))
			told := 0
			r.Notify = func(string) { told++ }
			if got := audit(t, r); counted(got) != 1 || told != 1 {
				t.Fatalf("got %+v, told %d times", got, told)
			}
			changed := policy(c.change)
			stored := &v1alpha1.RegoPolicy{}
			if err := p.Get(t.Context(), client.ObjectKeyFromObject(changed), stored); err != nil {
				t.Fatal(err)
			}
			stored.Spec, stored.Finalizers = changed.Spec, []string{"example.com/waits"}
			if err := p.Update(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
			if c.deleted {
				if err := p.Delete(t.Context(), stored); err != nil {
					t.Fatal(err)
				}
			}
			r.Evaluator = byLabel{c.revision}
			if got := audit(t, r); got != nil || told != 2 {
				t.Errorf("got %+v, told %d times", got, told)
			}
		})
	}
}

func TestAnAuditThatIsEndedIsMadeAgain(t *testing.T) {
	r, p := reconcilerOver(t, policy(nil), deployment("a", "b", ""))
	ctx, cancel := context.WithCancel(t.Context())
	p.fail = func(int) error { cancel(); return ctx.Err() }
	_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}})
	if !errors.Is(err, context.Canceled) || r.Violations("owners") != nil {
		t.Errorf("error %v, violations %v", err, r.Violations("owners"))
	}
}

// Where people read policies who may not see the objects of all namespaces, the status counts and names nothing.
func TestNamelessAudits(t *testing.T) {
	r, _ := reconcilerOver(t, policy(nil), deployment("team-a", "web", ""), deployment("team-b", "api", "?"))
	r.Nameless = true
	v := audit(t, r)
	if v.Count != nil || v.AtLeast != 1 || v.Undecided != 1 || v.First != nil || v.Incomplete == "" || strings.Contains(v.Incomplete, "team-b") {
		t.Errorf("found is %+v", v)
	}
	for reason, named := range map[v1alpha1.ConditionReason]bool{v1alpha1.ReasonReportNameTaken: false, v1alpha1.ReasonReported: true} {
		f := r.redactFinding(&Finding{reason, "Report team-b/x."})
		if strings.Contains(f.Message, "team-b") != named {
			t.Errorf("%s is told as %q", reason, f.Message)
		}
	}
}

// Who asks for an audit gets a new one, at most one every few seconds, and knows which it is.
func TestAuditsThatAreAskedFor(t *testing.T) {
	r, p := reconcilerOver(t, policy(nil), deployment("a", "bad", ""))
	now := r.Now()
	r.Now = func() time.Time { return now }
	audit(t, r)
	asking := policy(nil)
	if err := p.Get(t.Context(), client.ObjectKeyFromObject(asking), asking); err != nil {
		t.Fatal(err)
	}
	asking.Annotations = map[string]string{v1alpha1.AnnotationAudit: "once"}
	for _, err := range []error{p.Update(t.Context(), asking), p.Create(t.Context(), deployment("a", "new", ""))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := audit(t, r); got.Requested != "" || counted(got) != 1 {
		t.Errorf("an audit is made immediately after another one: %+v", got)
	}
	now = now.Add(askedPause)
	if got := audit(t, r); got.Requested != "once" || counted(got) != 2 {
		t.Errorf("an audit was requested, and there is %+v", got)
	}
}

// An audit that takes longer than the interval is followed by the next one.
func TestAuditsThatTakeLongerThanTheInterval(t *testing.T) {
	r, _ := reconcilerOver(t, policy(nil), deployment("a", "bad", ""))
	now := r.Now()
	r.Now = func() time.Time { now = now.Add(time.Hour); return now }
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}})
	if err != nil || result.RequeueAfter != firstRetry {
		t.Errorf("again after %v, error %v", result.RequeueAfter, err)
	}
}

// An audit that takes its time tells how far it is, and tells when it is not under way any more.
func TestAuditsTellHowFarTheyAre(t *testing.T) {
	objects := []client.Object{policy(nil)}
	for i := range 4 {
		objects = append(objects, deployment("c", fmt.Sprint(i), ""))
	}
	r, _ := reconcilerOver(t, objects...)
	now := r.Now()
	r.Now = func() time.Time { now = now.Add(time.Second); return now }
	var told []string
	r.Notify = func(p string) {
		if is := r.Auditing(p); is != nil {
			told = append(told, fmt.Sprintf("%d %s", is.Objects, is.Resource))
		}
	}
	audit(t, r)
	if diff := cmp.Diff([]string{"2 deployments.apps", "4 deployments.apps"}, told); diff != "" || r.Auditing("owners") != nil {
		t.Errorf("at the end there is %+v; told (-want +got)\n%s", r.Auditing("owners"), diff)
	}
}
