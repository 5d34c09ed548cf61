package vsphere

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Tenants say which machines of a vCenter a namespace may have.
type Tenants struct {
	// Admits judges a VirtualMachine whose spec says where in the inventory its machine is. A Permission error says why the machine
	// may not be there, any other why that could not be judged.
	Admits func(context.Context, *v1alpha1.VirtualMachine) error
	// Server gives the VSphereServer of that name, which may come from a cache, one without a UID if there is none.
	Server func(ctx context.Context, name string) (*v1alpha1.VSphereServer, error)
	// Now is the clock.
	Now func() time.Time
}

// tenancy asks the tenants before a machine is looked at or told something.
type tenancy struct {
	Tenants
	// admitted is by the UID of a VirtualMachine what it was admitted in, and when.
	admitted sync.Map
}

// admittedFor is how long a machine is looked at without asking the tenants again. An edited policy, the labels of a namespace and
// where in the inventory a machine is change what they say, and nothing tells of it.
const admittedFor = 10 * time.Minute

// admission is what a machine was admitted in: a VSphereServer of that name that is made anew is another one.
type admission struct {
	machine, server int64 // generations
	of              types.UID
	at              time.Time
}

// goesFor tells whether an admission still holds for what is now.
func (a admission) goesFor(now admission) bool {
	since := now.at.Sub(a.at)
	a.at = now.at
	return a == now && since < admittedFor
}

// placing tells where in the inventory a machine really is. A NotFound error says that it is nowhere.
type placing func(context.Context, runtime.Machine) (path string, err error)

// of has the tenants asked about one machine before it is looked at, and before each call that gives its VirtualMachine a hold on it
// or changes it. Withdrawing what is in flight, and letting the machine go, are never refused: whoever loses a right can still end
// what was begun.
func (t *tenancy) of(vm *v1alpha1.VirtualMachine, place placing) runtime.Interceptor {
	return func(ctx context.Context, call *runtime.Call, next func(context.Context) error) error {
		var refused error
		switch call.Verb {
		case runtime.VerbCancel, runtime.VerbDelete:
		case runtime.VerbObserve:
			refused = t.mayLook(ctx, vm, call.Machine, place)
		default:
			refused = t.may(ctx, vm, call.Machine, place)
		}
		if refused != nil {
			return refused
		}
		return next(ctx)
	}
}

// mayLook asks about a machine that is only looked at when it or its VSphereServer has changed, and from time to time, so that a right
// that was taken away shows. A machine that somebody has, or that is let go, is always looked at, and so is one that could not be
// judged.
func (t *tenancy) mayLook(ctx context.Context, vm *v1alpha1.VirtualMachine, m runtime.Machine, place placing) error {
	if !vm.DeletionTimestamp.IsZero() {
		t.admitted.Delete(vm.UID)
		return nil
	}
	server, err := t.Server(ctx, vm.Spec.Runtime.VSphere.ServerRef.Name)
	if err != nil || vm.Busy() {
		return nil
	}
	now := admission{machine: vm.Generation, server: server.Generation, of: server.UID, at: t.Now()}
	if before, known := t.admitted.Load(vm.UID); known && before.(admission).goesFor(now) {
		return nil
	}
	switch err := t.may(ctx, vm, m, place); {
	case err == nil:
		t.admitted.Store(vm.UID, now)
	case runtime.IsPermission(err):
		return err
	}
	return nil
}

// may asks about the machine where it really is, which its spec need not say and which may have changed since it was admitted, as may
// have what its VSphereServer allows. A machine that is nowhere yet is judged by where its spec has it, and is not told anything
// either: by the time that the call arrives it could have appeared elsewhere.
func (t *tenancy) may(ctx context.Context, vm *v1alpha1.VirtualMachine, m runtime.Machine, place placing) error {
	vm = vm.DeepCopy()
	path, absent := place(ctx, m)
	switch {
	case absent == nil:
		vm.Spec.Runtime.VSphere.InventoryPath = path
	case !runtime.IsNotFound(absent):
		return absent
	}
	if err := t.Admits(ctx, vm); err != nil {
		return err
	}
	return absent
}
