package drain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// world is a machine on a cordoned node, whose Pod is to be evicted.
type world struct {
	vm   *v1alpha1.VirtualMachine
	pod  *corev1.Pod
	node *corev1.Node
	ops  []client.Object
}

func newWorld() *world {
	owner := metav1.NewControllerRef(&metav1.ObjectMeta{Name: "web-1", UID: "u-1"}, v1alpha1.GroupVersion.WithKind("VirtualMachine"))
	return &world{
		vm: &v1alpha1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "web-1", UID: "u-1"},
			Status:     v1alpha1.VirtualMachineStatus{Phase: v1alpha1.VirtualMachineRunning, InstanceID: "web-1-u-1"},
		},
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "web-1-u-1", UID: "p-1", OwnerReferences: []metav1.OwnerReference{*owner}},
			Spec:       corev1.PodSpec{NodeName: "node-a"},
		},
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{v1alpha1.LabelDrain: v1alpha1.DrainEnabled}},
			Spec:       corev1.NodeSpec{Unschedulable: true},
		},
	}
}

// move adds an operation that moves the machine, and ended so long ago in that phase.
func (w *world) move(name string, phase v1alpha1.OperationPhase, ago time.Duration) {
	o := &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, UID: types.UID(name)},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationEvict, VirtualMachineName: "web-1"},
		Status:     v1alpha1.VirtualMachineOperationStatus{Phase: phase},
	}
	if o.Finished() {
		o.Status.StartTime, o.Status.CompletionTime = &metav1.Time{Time: noon.Add(-time.Hour)}, &metav1.Time{Time: noon.Add(-ago)}
	}
	w.ops = append(w.ops, o)
}

// run begins the reconciler in a process of its own, over an API server that has the world.
func (w *world) run(t *testing.T, on interceptor.Funcs) (*Reconciler, *events.FakeRecorder) {
	t.Helper()
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fakeclient.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(on).
		WithIndex(&v1alpha1.VirtualMachineOperation{}, "spec.virtualMachineName", func(o client.Object) []string {
			return []string{o.(*v1alpha1.VirtualMachineOperation).Spec.VirtualMachineName}
		}).
		WithObjects(w.vm, w.pod, w.node).WithObjects(w.ops...).Build()
	told := events.NewFakeRecorder(10)
	return &Reconciler{Client: c, Live: c, Events: told, Now: func() time.Time { return noon }}, told
}

func evictPod(t *testing.T, r *Reconciler) error {
	t.Helper()
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ci", Name: "web-1-u-1"}})
	return err
}

// operations gives the names of those that there are.
func operations(t *testing.T, r *Reconciler) (names []string) {
	t.Helper()
	var all v1alpha1.VirtualMachineOperationList
	if err := r.Live.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, o := range all.Items {
		names = append(names, o.Name)
	}
	return names
}

// taint puts a taint on the node in place of the cordon. The Pod tolerates those with the key dedicated.
func taint(key string, effect corev1.TaintEffect) func(*world) {
	return func(w *world) {
		w.node.Spec = corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: effect}}}
		w.pod.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
}

// A review can be made up, and the world has gone on since one that is true: nothing is moved that is not on a cordoned node now.
func TestWhoIsMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		moved  bool
	}{
		"a machine on a cordoned node":                                         {func(*world) {}, true},
		"a node that takes Pods":                                               {func(w *world) { w.node.Spec.Unschedulable = false }, false},
		"a node that an autoscaler empties":                                    {taint("ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule), true},
		"a taint that the Pod tolerates":                                       {taint("dedicated", corev1.TaintEffectNoSchedule), false},
		"a taint that only advises":                                            {taint("busy", corev1.TaintEffectPreferNoSchedule), false},
		"a node that is not heard of":                                          {taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule), false},
		"a cordon that is for something else, and a review that may be forged": {func(w *world) { w.node.Labels = nil }, false},
		"a label of another value":                                             {func(w *world) { w.node.Labels[v1alpha1.LabelDrain] = "disabled" }, false},
		"a node that is gone":                                                  {func(w *world) { w.pod.Spec.NodeName = "node-b" }, false},
		"a Pod on no node":                                                     {func(w *world) { w.pod.Spec.NodeName = "" }, false},
		"a Pod that is gone":                                                   {func(w *world) { w.pod.Name = "web-1-u-2" }, false},
		"a Pod of nobody":                                                      {func(w *world) { w.pod.OwnerReferences = nil }, false},
		"a Pod of something else":                                              {func(w *world) { w.pod.OwnerReferences[0].UID = "r-1" }, false},
		"a VirtualMachine that is gone":                                        {func(w *world) { w.vm.Name = "web-2" }, false},
		"another VirtualMachine of the name":                                   {func(w *world) { w.vm.UID = "u-2" }, false},
		"a machine that is off":                                                {func(w *world) { w.vm.Status.Phase = v1alpha1.VirtualMachineStopped }, false},
		"one that is on its way":                                               {func(w *world) { w.vm.Status.Phase = v1alpha1.VirtualMachineMigrating }, false},
		"one that is another Pod by now":                                       {func(w *world) { w.vm.Status.InstanceID = "web-1-u-1-1a2b3c4d" }, false},
		"a move that waits":                                                    {func(w *world) { w.move("o", v1alpha1.OperationPending, 0) }, false},
		"a move that nobody has looked at":                                     {func(w *world) { w.move("o", "", 0) }, false},
		"a move that has just failed":                                          {func(w *world) { w.move("o", v1alpha1.OperationFailed, pauseAfterFailure-time.Second) }, false},
		"one that never began": {func(w *world) {
			w.move("o", v1alpha1.OperationFailed, time.Second)
			w.ops[0].(*v1alpha1.VirtualMachineOperation).Status.StartTime = nil
		}, true},
		"one that failed some time ago":   {func(w *world) { w.move("o", v1alpha1.OperationFailed, pauseAfterFailure) }, true},
		"a move that has brought it here": {func(w *world) { w.move("o", v1alpha1.OperationCompleted, time.Second) }, true},
		"one that failed before one that did so": {func(w *world) {
			w.move("o", v1alpha1.OperationFailed, 2*time.Second)
			w.move("p", v1alpha1.OperationCompleted, time.Second)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			r, told := w.run(t, interceptor.Funcs{})
			if err := evictPod(t, r); err != nil {
				t.Fatal(err)
			}
			if made := len(operations(t, r)) - len(w.ops); (made == 1) != tc.moved || made > 1 || len(told.Events) != made {
				t.Errorf("%d operations were created, and %d events told", made, len(told.Events))
			}
		})
	}
}

// If only API servers reach the webhooks, an eviction is what it says, and a cordon is enough.
func TestVerifiedEvictions(t *testing.T) {
	for cordoned, want := range map[bool]int{true: 1, false: 0} {
		w := newWorld()
		w.node.Labels, w.node.Spec.Unschedulable = nil, cordoned
		r, _ := w.run(t, interceptor.Funcs{})
		r.Verified = true
		if err := evictPod(t, r); err != nil {
			t.Fatal(err)
		}
		if made := operations(t, r); len(made) != want {
			t.Errorf("cordoned: %v: the operations %v were created", cordoned, made)
		}
	}
}

// Two replicas that are told of one eviction, and one that does not hear that it has created the operation, make one operation.
func TestOneOperation(t *testing.T) {
	lost, unlisted := errors.New("the reply was lost"), false
	r, _ := newWorld().run(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, o, opts...); err != nil {
				return err
			}
			return lost
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if unlisted {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	if err := evictPod(t, r); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	for _, unlisted = range []bool{false, true} { // with the other replica's operation listed, and with it created since
		if err := evictPod(t, r); err != nil {
			t.Error(err)
		}
	}
	unlisted = false
	if all := operations(t, r); len(all) != 1 {
		t.Errorf("there are the operations %v", all)
	}
}

// Two moves that ended in the same second do not lead to the name of an operation that exists: AlreadyExists would count as success,
// and the machine would stay.
func TestMovesThatEndedTogether(t *testing.T) {
	r, _ := newWorld().run(t, interceptor.Funcs{})
	for range 4 {
		if err := evictPod(t, r); err != nil {
			t.Fatal(err)
		}
		var all v1alpha1.VirtualMachineOperationList
		if err := r.Live.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for i := range all.Items { // the fake API server gives no UIDs
			o := &all.Items[i]
			o.UID = types.UID(o.Name)
			o.Status.Phase, o.Status.CompletionTime = v1alpha1.OperationCompleted, &metav1.Time{Time: noon}
			if err := r.Client.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if all := operations(t, r); len(all) != 4 {
		t.Errorf("four evictions made the operations %v", all)
	}
}

// What admission refuses is told on the machine, and the next eviction tries again.
func TestRefusedOperations(t *testing.T) {
	w := newWorld()
	r, told := w.run(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachineoperations"}, "o", errors.New("no room"))
	}})
	if err := evictPod(t, r); err != nil {
		t.Fatal(err)
	}
	if event := <-told.Events; !strings.HasPrefix(event, "Warning FailedCreate the machine stays on node node-a") || !strings.HasSuffix(event, "no room") {
		t.Errorf("told %q", event)
	}
}

// The API server takes names of 253 characters. That of the operation follows from a name that long, and is none that ends in a dot.
func TestLongNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("a", 253), strings.Repeat("a", 237) + ".b" + strings.Repeat("c", 14)} {
		w := newWorld()
		w.vm.Name, w.pod.OwnerReferences[0].Name = name, name
		r, _ := w.run(t, interceptor.Funcs{})
		if err := evictPod(t, r); err != nil {
			t.Fatal(err)
		}
		if all := operations(t, r); len(all) != 1 || len(validation.IsDNS1123Subdomain(all[0])) > 0 {
			t.Errorf("there are the operations %v", all)
		}
	}
}
