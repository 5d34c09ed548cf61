package model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

func TestMain(m *testing.M) { install.Main(m) }

// twins are the model's store and a real API server, to which the same is done.
type twins struct {
	*testing.T
	store     *store
	api       client.Client
	namespace string
	// What somebody holds in hand, of each: as it was read some time ago.
	ours, theirs map[id]client.Object
}

func newTwins(t *testing.T) *twins {
	t.Helper()
	scheme := kruntime.NewScheme()
	log.SetLogger(logr.Discard())
	for _, add := range []func(*kruntime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api, err := client.New(env.Shared(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &twins{T: t, api: api}
}

// renew begins with nothing, in a namespace of its own.
func (w *twins) renew() {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "twins-"}}
	if err := w.api.Create(w.Context(), ns); err != nil {
		w.Fatal(err)
	}
	w.namespace, w.store = ns.Name, newStore(time.Now)
	w.ours, w.theirs = map[id]client.Object{}, map[id]client.Object{}
}

// both does the same to both, and compares what they answer.
func (w *twins) both(t *rapid.T, what string, ours, theirs error) {
	t.Logf("%s: %v", what, theirs)
	if a, b := apierrors.ReasonForError(ours), apierrors.ReasonForError(theirs); a != b || (ours == nil) != (theirs == nil) {
		t.Fatalf("%s: the store says %q (%v), the API server %q (%v)", what, a, ours, b, theirs)
	}
}

// fresh makes an object of one of the kinds.
func (w *twins) fresh(kind int, finalizers []string) client.Object {
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "a", Finalizers: finalizers}
	if kind == 0 {
		return &v1alpha1.VirtualMachine{ObjectMeta: meta, Spec: v1alpha1.VirtualMachineSpec{
			RunPolicy: v1alpha1.RunPolicyManual, RestartApprovalMode: v1alpha1.RestartManual, TerminationGracePeriodSeconds: new(int32(30)),
			Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
		}}
	}
	return &v1alpha1.VirtualMachineOperation{ObjectMeta: meta, Spec: v1alpha1.VirtualMachineOperationSpec{
		Type: v1alpha1.OperationStop, VirtualMachineName: "vm", TTLSecondsAfterFinished: new(int32(60)),
	}}
}

const finalizer, another = "example.com/one", "example.com/another"

// step does something at random, mostly with what was read some time ago.
func (w *twins) step(t *rapid.T) {
	kind := rapid.IntRange(0, 1).Draw(t, "kind")
	of := idOf(w.fresh(kind, nil))
	ours, theirs := w.ours[of], w.theirs[of]
	if ours == nil { // never read
		ours, theirs = w.fresh(kind, nil), w.fresh(kind, nil)
	}
	// What is done is done to copies, so that somebody still has the old ones.
	a, b := copyOf(ours), copyOf(theirs)
	ctx := w.Context()
	n := rapid.IntRange(1, 3).Draw(t, "n")
	switch rapid.IntRange(0, 8).Draw(t, "what") {
	case 0, 1:
		var f []string
		if n > 1 {
			f = []string{finalizer}
		}
		w.both(t, "create", w.store.create(w.fresh(kind, f)), w.api.Create(ctx, w.fresh(kind, f)))
	case 2, 3:
		w.both(t, "read", w.store.read(of, len(w.store.log), a), w.api.Get(ctx, of.NamespacedName, b))
		w.ours[of], w.theirs[of] = a, b
		if w.store.current[of] == nil {
			delete(w.ours, of)
		}
	case 4, 5:
		for _, o := range []client.Object{a, b} {
			change(o, n)
		}
		w.both(t, "update status", w.store.updateStatus(a), w.api.Status().Update(ctx, b))
	case 6:
		for _, o := range []client.Object{a, b} {
			o.SetFinalizers([][]string{{another}, {finalizer}, nil}[n-1])
		}
		lock := client.MergeFromWithOptimisticLock{}
		w.both(t, "patch", w.store.patch(a, client.MergeFromWithOptions(ours, lock)), w.api.Patch(ctx, b, client.MergeFromWithOptions(theirs, lock)))
	case 7:
		for _, o := range []client.Object{a, b} {
			metav1.SetMetaDataAnnotation(objectMeta(o), "n", fmt.Sprint(n))
			if vm, is := o.(*v1alpha1.VirtualMachine); is {
				vm.Spec.RunPolicy = allRunPolicies[n]
			}
		}
		w.both(t, "update", w.store.update(a), w.api.Update(ctx, b))
	case 8:
		w.delete(t, n, a, b)
	}
	w.compare(t, of)
}

// change writes on a status. Times have whole seconds in the API, and microseconds where that is said.
func change(o client.Object, n int) {
	at := time.Unix(int64(1e9+n), 0)
	switch o := o.(type) {
	case *v1alpha1.VirtualMachine:
		o.Status.Phase = []v1alpha1.VirtualMachinePhase{v1alpha1.VirtualMachineRunning, v1alpha1.VirtualMachineStopped, v1alpha1.VirtualMachineStarting}[n-1]
		o.Status.ActiveOperation = &v1alpha1.ActiveOperation{ID: "x", Origin: v1alpha1.OriginRunPolicy, Type: "Start", ClaimedAt: metav1.NewMicroTime(at)}
		o.Spec.NodeName = "is left out"
	case *v1alpha1.VirtualMachineOperation:
		when := metav1.NewTime(at)
		o.Status.Phase, o.Status.CompletionTime = v1alpha1.OperationCompleted, &when
	}
	o.SetFinalizers([]string{"example.com/is-left-out"})
}

func (w *twins) delete(t *rapid.T, n int, a, b client.Object) {
	var ours *metav1.Preconditions
	var theirs []client.DeleteOption
	if uid, version := a.GetUID(), a.GetResourceVersion(); n > 1 && uid != "" {
		ours = &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
		uid, version := b.GetUID(), b.GetResourceVersion()
		theirs = append(theirs, client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
	w.both(t, "delete", w.store.remove(a, ours), w.api.Delete(w.Context(), b, theirs...))
}

// compare sees that both have the same object, and that a write that changes nothing makes no version.
func (w *twins) compare(t *rapid.T, of id) {
	ours := w.store.current[of]
	theirs := w.fresh(0, nil)
	if of.kind == operations {
		theirs = w.fresh(1, nil)
	}
	err := w.api.Get(w.Context(), of.NamespacedName, theirs)
	if (ours == nil) != apierrors.IsNotFound(err) || (err != nil && !apierrors.IsNotFound(err)) {
		t.Fatalf("the store has %v, and the API server says %v", ours, err)
	}
	if ours == nil {
		return
	}
	ours = copyOf(ours)
	if whole := ours.GetCreationTimestamp(); whole.Nanosecond() != 0 {
		t.Fatalf("created at %s", whole)
	}
	if held := w.ours[of]; held != nil {
		if a, b := held.GetResourceVersion() == ours.GetResourceVersion(), w.theirs[of].GetResourceVersion() == theirs.GetResourceVersion(); a != b {
			t.Fatalf("the store's version is as it was read: %v, the API server's: %v", a, b)
		}
	}
	for _, o := range []client.Object{ours, theirs} {
		m := objectMeta(o)
		m.UID, m.ResourceVersion, m.CreationTimestamp, m.ManagedFields = "", "", metav1.Time{}, nil
		if m.DeletionTimestamp != nil {
			m.DeletionTimestamp = &metav1.Time{}
		}
		o.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(""))
	}
	if !equality.Semantic.DeepEqual(ours, theirs) {
		t.Fatalf("(-store +API server):\n%s", cmp.Diff(ours, theirs))
	}
}

// The store answers as an API server does, and has the same in the end.
func TestStoreIsLikeTheAPIServer(t *testing.T) {
	w := newTwins(t)
	rapid.Check(t, func(rt *rapid.T) {
		w.renew()
		for range 25 {
			w.step(rt)
		}
	})
}

// A list by the name of a machine gives the same as that of an API server, in the same order.
func TestStoreListsLikeTheAPIServer(t *testing.T) {
	w := newTwins(t)
	w.renew()
	for _, name := range []string{"b", "a", "c"} {
		for _, make := range []func(client.Object) error{w.store.create, func(o client.Object) error { return w.api.Create(t.Context(), o) }} {
			o := w.fresh(1, nil).(*v1alpha1.VirtualMachineOperation)
			o.Name = name
			if name == "c" {
				o.Spec.VirtualMachineName = "other"
			}
			if err := make(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	var list v1alpha1.VirtualMachineOperationList
	if err := w.api.List(t.Context(), &list, client.InNamespace(w.namespace), client.MatchingFields{"spec.virtualMachineName": "vm"}); err != nil {
		t.Fatal(err)
	}
	var ours, theirs []string
	for _, o := range w.store.operationsOf(w.namespace, "vm", len(w.store.log)) {
		ours = append(ours, o.Name)
	}
	for _, o := range list.Items {
		theirs = append(theirs, o.Name)
	}
	if a, b := strings.Join(ours, " "), strings.Join(theirs, " "); a != b || a != "a b" {
		t.Errorf("the store lists %s, the API server %s", a, b)
	}
}
