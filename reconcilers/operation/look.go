package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// pass is one Reconcile. What it remembers from look to look only keeps it from doing the same thing twice in a row.
type pass struct {
	key types.NamespacedName

	signalled bool               // something was sent: its effect is waited for before anything is sent again
	undecided map[types.UID]bool // no ruling could be made on these
	again     time.Duration      // when to look again, 0 for when something changes
	troubles  []error            // what went wrong without changing what is due
}

// look is what one look found. It is written on, and thrown away after the first write.
type look struct {
	*pass
	now        time.Time
	vm         *v1alpha1.VirtualMachine            // nil if it is gone
	operations []*v1alpha1.VirtualMachineOperation // of this machine by name, oldest first
}

// look reads live, the machine first and the operations second: no claim that the machine shows is newer than what is read of
// the operations, and a write of the machine succeeds only if its claim is still as it was read. The other way round, a process
// that is slow between the two would give the machine to an operation that has ended, or drop one that it has not seen.
//
// An operation that does not fit the machine may be of one that was made since: then both are read again.
func (r *Reconciler) look(ctx context.Context, p *pass) (*look, error) {
	p.again, p.troubles = 0, nil
	vm, err := r.machine(ctx, p)
	for err == nil {
		l := &look{pass: p, now: r.Now(), vm: vm}
		if l.operations, err = r.list(ctx, p); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(l.unfinished(), func(o *v1alpha1.VirtualMachineOperation) bool { return o.Spec.VirtualMachineUID != uid(vm) }) {
			return l, nil
		}
		var again *v1alpha1.VirtualMachine
		if again, err = r.machine(ctx, p); err == nil && uid(again) == uid(vm) {
			return l, nil
		}
		vm = again
	}
	return nil, err
}

// machine reads the machine, nil if it is gone.
func (r *Reconciler) machine(ctx context.Context, p *pass) (*v1alpha1.VirtualMachine, error) {
	vm := &v1alpha1.VirtualMachine{}
	switch err := r.Live.Get(ctx, p.key, vm); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading VirtualMachine %s: %w", p.key, err)
	}
	return vm, nil
}

// list reads the operations of the machine, by name, oldest first.
func (r *Reconciler) list(ctx context.Context, p *pass) ([]*v1alpha1.VirtualMachineOperation, error) {
	var list v1alpha1.VirtualMachineOperationList
	ofMachine := client.MatchingFields{"spec.virtualMachineName": p.key.Name}
	if err := r.Live.List(ctx, &list, client.InNamespace(p.key.Namespace), ofMachine); err != nil {
		return nil, fmt.Errorf("listing the operations of VirtualMachine %s: %w", p.key, err)
	}
	all := make([]*v1alpha1.VirtualMachineOperation, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	slices.SortFunc(all, byAge)
	return all, nil
}

// uid is the UID of a machine, and of none that is gone.
func uid(vm *v1alpha1.VirtualMachine) types.UID {
	if vm == nil {
		return ""
	}
	return vm.UID
}

// byAge orders operations. Clocks of the API server have whole seconds; the stamp of the webhook tells within one, and the
// UID is there to have an order in any case.
func byAge(a, b *v1alpha1.VirtualMachineOperation) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Spec.RequestedAt, b.Spec.RequestedAt),
		cmp.Compare(a.UID, b.UID),
	)
}

// unfinished gives the operations that have not ended, oldest first.
func (l *look) unfinished() []*v1alpha1.VirtualMachineOperation {
	return slices.DeleteFunc(slices.Clone(l.operations), (*v1alpha1.VirtualMachineOperation).Finished)
}

// holds tells whether the operation holds the machine.
func (l *look) holds(o *v1alpha1.VirtualMachineOperation) bool {
	return l.vm != nil && claim.Holds(&l.vm.Status, string(o.UID))
}

// entry gives what undoing has of the operation, or nil.
func (l *look) entry(o *v1alpha1.VirtualMachineOperation) *v1alpha1.UndoingOperation {
	if l.vm == nil {
		return nil
	}
	for i := range l.vm.Status.Undoing {
		if l.vm.Status.Undoing[i].ID == string(o.UID) {
			return &l.vm.Status.Undoing[i]
		}
	}
	return nil
}

// of gives the operation with that UID, or nil.
func (l *look) of(id string) *v1alpha1.VirtualMachineOperation {
	i := slices.IndexFunc(l.operations, func(o *v1alpha1.VirtualMachineOperation) bool { return string(o.UID) == id })
	if i < 0 {
		return nil
	}
	return l.operations[i]
}

// holder gives the operation that holds the machine, or nil if that is nobody or no operation.
func (l *look) holder() *v1alpha1.VirtualMachineOperation {
	if l.vm == nil || l.vm.Status.ActiveOperation == nil || l.vm.Status.ActiveOperation.Origin != v1alpha1.OriginOperation {
		return nil
	}
	return l.of(l.vm.Status.ActiveOperation.ID)
}

// wait has the machine looked at again after that time, or sooner.
func (p *pass) wait(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

// trouble has everything tried again, later and later.
func (p *pass) trouble(err error) { p.troubles = append(p.troubles, err) }

// troubled is trouble that a runtime makes. That this process has to wait for another one passes by itself.
func (r *Reconciler) troubled(p *pass, doing string, err error) {
	if runtime.IsTakingOver(err) {
		r.poll(p)
		return
	}
	p.trouble(fmt.Errorf("%s: %w", doing, err))
}

// poll has the machine looked at again while the runtime is busy with it.
func (r *Reconciler) poll(p *pass) { p.wait(cmp.Or(r.Poll, defaultPoll)) }

// observe looks at the machine on its runtime.
func (r *Reconciler) observe(ctx context.Context, l *look) (*runtime.Client, runtime.Observation, error) {
	rt, err := r.Runtimes(ctx, l.vm)
	if err != nil {
		return nil, runtime.Observation{}, err
	}
	seen, err := rt.Observe(ctx, runtime.MachineOf(l.vm))
	return rt, seen, err
}
