package pool

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// noted keeps what is added to a queue, and how long it is to wait there: a queue looks once at what is added while it waits.
type noted struct {
	queue
	waits []time.Duration
	t     *testing.T
}

func (q *noted) Add(item reconcile.Request) { q.AddAfter(item, 0) }

func (q *noted) AddAfter(item reconcile.Request, wait time.Duration) {
	if item.NamespacedName != poolKey {
		q.t.Errorf("%v is to be looked at", item)
	}
	q.waits = append(q.waits, wait)
}

// Whatever becomes of a member, its pool is looked at when a second's changes are there.
func TestChangesOfMembersAreGathered(t *testing.T) {
	t.Parallel()
	s, q := newServer(), &noted{t: t}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	mapper.Add(v1alpha1.GroupVersion.WithKind("VirtualMachinePool"), meta.RESTScopeNamespace)
	members := delayedHandler{handler.EnqueueRequestForOwner(s.Scheme(), mapper, &v1alpha1.VirtualMachinePool{}, handler.OnlyControllerOwner())}
	pool := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}}
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-0"}}
	vm.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("VirtualMachinePool"))}
	members.Create(t.Context(), event.CreateEvent{Object: vm}, q)
	members.Update(t.Context(), event.UpdateEvent{ObjectOld: vm, ObjectNew: vm}, q)
	members.Delete(t.Context(), event.DeleteEvent{Object: vm}, q)
	if len(q.waits) != 3 || q.waits[0] != gatherPeriod || q.waits[1] != gatherPeriod || q.waits[2] != gatherPeriod {
		t.Errorf("they wait for %v", q.waits)
	}
}

// What a pool is to be is looked at at once, what is written here itself is not.
func TestOfAPoolOnlyItsSpecIsUrgent(t *testing.T) {
	t.Parallel()
	before := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	status, spec := before.DeepCopy(), before.DeepCopy()
	status.Status.Replicas, spec.Generation = 1, 2
	if generationChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: status}) || !generationChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: spec}) ||
		!generationChanged.Create(event.CreateEvent{Object: before}) || !generationChanged.Delete(event.DeleteEvent{Object: before}) {
		t.Error("a status is urgent, or a spec is not")
	}
}
