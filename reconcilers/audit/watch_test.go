package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/step"
)

// watched is a reconciler that hears of changes, and has been told to look at a policy once more.
type watched struct {
	step.T
	*Reconciler
	*paged
	began  chan string // the version of each watch that has begun
	fail   error       // of watches
	broken chan watch.Event
}

func watchedOver(t *testing.T, objects ...client.Object) *watched {
	t.Helper()
	r, p := reconcilerOver(t, objects...)
	w := &watched{T: step.T{T: t}, Reconciler: r, paged: p, began: make(chan string, 100)}
	r.Watcher, r.Settle, r.due = w, time.Millisecond, make(chan event.GenericEvent)
	return w
}

// Watch counts, and has watches fail.
func (w *watched) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	defer func() { w.began <- o.Raw.ResourceVersion }()
	if w.fail != nil {
		return nil, w.fail
	}
	if w.broken != nil {
		return watch.NewProxyWatcher(w.broken), nil
	}
	changes, err := w.WithWatch.Watch(ctx, list, options...)
	if err != nil {
		return nil, err
	}
	return watch.Filter(changes, func(e watch.Event) (watch.Event, bool) { // as the API server sends them
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e.Object)
		if err != nil {
			w.Error(err)
		}
		e.Object = &unstructured.Unstructured{Object: fields}
		if _, metadata := list.(*metav1.PartialObjectMetadataList); metadata {
			e.Object = &metav1.PartialObjectMetadata{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, e.Object)
		}
		return e, err == nil
	}), nil
}

// reconcile looks at the policy, and tells whether everything was listed for it.
func (w *watched) reconcile() (listed bool) {
	w.Helper()
	before := w.page
	if _, err := w.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "owners"}}); err != nil {
		w.Fatal(err)
	}
	return w.page > before
}

// until has the policy looked at whenever that is due, until so many violations are known; nothing is listed for it.
func (w *watched) until(count int32) *v1alpha1.PolicyViolations {
	w.Helper()
	for {
		got := w.Violations("owners")
		if counted(got) == count {
			return got
		}
		select {
		case <-w.due:
		case <-time.After(time.Minute):
			w.Fatalf("nothing is due, and it knows of %+v", got)
		}
		if w.reconcile() {
			w.Error("everything is listed because one object has changed")
		}
	}
}

// What becomes a violator, or is one no more, is found when it happens, by that object alone.
func TestWhatChangesIsFoundWhenItChanges(t *testing.T) {
	w := watchedOver(t, policy(nil), deployment("a", "fine", "me"), deployment("a", "bad", ""))
	w.reconcile()
	w.until(1)
	if from := <-w.began; from != "7" { // of the list, so that nothing is missed
		t.Errorf("the watch began at version %q", from)
	}
	w.Must(w.Create(t.Context(), deployment("b", "new", "")))
	if got := w.until(2); got.Objects != 3 || got.First[1].Name != "new" || !got.AuditedAt.Equal(&metav1.Time{Time: w.Now().Truncate(1e9)}) {
		t.Errorf("got %+v", got)
	}
	d := deployment("a", "fine", "")
	w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	d.Labels = nil
	w.Must(w.Update(t.Context(), d))
	w.until(3)
	w.Must(w.Delete(t.Context(), deployment("a", "bad", "")))
	w.until(2)
	d.Labels = map[string]string{"owner": "me"}
	w.Must(w.Update(t.Context(), d))
	got := w.until(1)
	if names := []string{got.First[0].Name}; len(got.First) != 1 || !cmp.Equal(names, []string{"new"}) || got.Objects != 2 {
		t.Errorf("got %+v", got)
	}
	w.Must(w.Create(t.Context(), deployment("a", "odd", "?")))
	w.until(-1)
	w.Must(w.Delete(t.Context(), deployment("a", "odd", "")))
	w.until(1)
}

// relabelled has a namespace selected by its labels.
type relabelled struct {
	byLabel
	mu      sync.Mutex
	exempts map[string]bool
}

func (j *relabelled) Judge(ctx context.Context, policy string, r schema.GroupVersionResource, o *unstructured.Unstructured) (Judgement, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.exempts[o.GetNamespace()] {
		return Judgement{}, nil
	}
	return j.byLabel.Judge(ctx, policy, r, o)
}

// A namespace that is relabelled has its objects looked at again, and those of no other.
func TestARelabelledNamespaceIsLookedAtAgain(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	selects := policy(func(s *v1alpha1.RegoPolicySpec) { s.Match.NamespaceSelector = &metav1.LabelSelector{} })
	w := watchedOver(t, selects, namespace, deployment("a", "x", ""), deployment("b", "y", ""))
	judge := &relabelled{byLabel: byLabel{"r1"}, exempts: map[string]bool{"a": true}}
	w.Judge = judge
	w.reconcile()
	<-w.began
	<-w.began
	if got := w.Violations("owners"); counted(got) != 1 {
		t.Fatalf("at first it knows of %+v", got)
	}
	for _, exempt := range []bool{false, true} {
		judge.mu.Lock()
		judge.exempts["a"] = exempt
		judge.mu.Unlock()
		namespace.Labels = map[string]string{"exempt": fmt.Sprint(exempt)}
		w.Must(w.Update(t.Context(), namespace))
		<-w.due
		w.namespaces = nil
		w.reconcile()
		want := int32(2)
		if exempt {
			want = 1
		}
		if got := w.Violations("owners"); counted(got) != want || !cmp.Equal(w.namespaces, []string{"a"}) {
			t.Errorf("exempt %v: it knows of %+v, listed %v", exempt, got, w.namespaces)
		}
	}
}

// A watch that missed something has everything looked at again; one that is not allowed is told.
func TestWatchesThatEnd(t *testing.T) {
	w := watchedOver(t, policy(nil), deployment("a", "bad", ""))
	w.fail = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "", errors.New("no"))
	w.reconcile()
	<-w.due
	if w.reconcile() {
		t.Error("everything is listed again")
	}
	const want = "changes to deployments.apps are seen only by the next audit: Sallyport may not watch them; to grant access, add {deployments.apps: true} to the chart value rbac.reads"
	if got := w.Violations("owners"); got.Unwatched != want || counted(got) != 1 {
		t.Errorf("got %+v", got)
	}

	w = watchedOver(t, policy(nil), deployment("a", "bad", ""))
	w.broken = make(chan watch.Event, 1)
	w.reconcile()
	w.Must(w.Create(t.Context(), deployment("a", "unheard", "")))
	w.broken <- watch.Event{Type: watch.Error, Object: &metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired}}
	f := w.results["owners"].findings
	f.open.Wait()
	if !f.lost {
		t.Error("nobody notices that the watch has ended")
	}
	if !w.reconcile() || counted(w.Violations("owners")) != 2 {
		t.Errorf("not everything was looked at again: %+v", w.Violations("owners"))
	}
}

// What is heard of an object while a list is read is newer than the list.
func TestWhatIsHeardIsNewerThanTheList(t *testing.T) {
	w := watchedOver(t, policy(nil), deployment("a", "x", ""), deployment("a", "y", "me"))
	f, k := &findings{Reconciler: w.Reconciler, watching: t.Context()}, &kind{objects: map[client.ObjectKey]*finding{}}
	put := func(name string, bad, fromList bool) {
		o, judged := &unstructured.Unstructured{}, Judgement{Asked: true}
		o.SetName(name)
		if bad {
			judged.Against = []Objection{{"Bad", "bad"}}
		}
		f.put(k, o, judged, nil, fromList)
	}
	f.listing(k)
	put("x", false, false)
	gone := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "y"}}
	f.forget(k, gone, false)
	put("new", true, false)
	for _, name := range []string{"x", "y", "z"} {
		put(name, true, true)
	}
	f.listed(k, "", map[client.ObjectKey]bool{{Name: "x"}: true, {Name: "y"}: true, {Name: "z"}: true})
	_, y := k.objects[client.ObjectKey{Name: "y"}]
	if x := k.objects[client.ObjectKey{Name: "x"}]; x != nil || y || k.objects[client.ObjectKey{Name: "z"}] == nil || k.objects[client.ObjectKey{Name: "new"}] == nil {
		t.Errorf("it has %v", k.objects)
	}
}

// Who asks for an audit gets a new one, at most one every few seconds, and knows which it is.
func TestAuditsThatAreAskedFor(t *testing.T) {
	w := watchedOver(t, policy(nil), deployment("a", "bad", ""))
	now := w.Now()
	w.Now = func() time.Time { return now }
	w.reconcile()
	asks := func(when string) {
		p := &v1alpha1.RegoPolicy{}
		w.Must(w.Get(t.Context(), client.ObjectKey{Name: "owners"}, p))
		p.Annotations = map[string]string{v1alpha1.AnnotationAudit: when}
		w.Must(w.Update(t.Context(), p))
	}
	asks("once")
	if w.reconcile() {
		t.Error("an audit is made at once after another one")
	}
	now = now.Add(askedPause)
	if !w.reconcile() || w.Violations("owners").Requested != "once" {
		t.Errorf("it was asked for, and there is %+v", w.Violations("owners"))
	}
}

// An audit that takes its time tells how far it is, and tells when it is not under way any more.
func TestAuditsTellHowFarTheyAre(t *testing.T) {
	objects := []client.Object{policy(nil)}
	for i := range 4 {
		objects = append(objects, deployment("c", fmt.Sprint(i), ""))
	}
	w := watchedOver(t, objects...)
	now := w.Now()
	w.Now = func() time.Time { now = now.Add(time.Second); return now }
	var told []string
	w.Found = func(p string) {
		if is := w.Auditing(p); is != nil {
			told = append(told, fmt.Sprintf("%d %s", is.Objects, is.Resource))
		}
	}
	w.reconcile()
	if diff := cmp.Diff([]string{"2 deployments.apps", "4 deployments.apps"}, told); diff != "" || w.Auditing("owners") != nil {
		t.Errorf("at the end there is %+v; told (-want +got)\n%s", w.Auditing("owners"), diff)
	}
}
