package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/drive"
)

// look is what one turn found. It is written on, and thrown away after the first write.
type look struct {
	*drive.Turn
	operations []*v1alpha1.VirtualMachineOperation // of this machine by name, oldest first
	undecided  map[types.UID]bool                  // no ruling could be made on these in this pass
}

// look reads live, the machine first and the operations second: no claim that the machine shows is newer than what is read of
// the operations, and a write of the machine succeeds only if its claim is still as it was read. The other way round, a process
// that is slow between the two would give the machine to an operation that has ended, or drop one that it has not seen.
//
// An operation that does not fit the machine may be of one that was made since: then both are read again.
func (l *look) look(ctx context.Context) (err error) {
	for {
		if l.operations, err = l.list(ctx); err != nil {
			return err
		}
		vm, uid := l.VM, l.UID()
		if !slices.ContainsFunc(l.unfinished(), func(o *v1alpha1.VirtualMachineOperation) bool { return o.Spec.VirtualMachineUID != uid }) {
			return nil
		}
		if err = l.Look(ctx); err != nil {
			return err
		}
		if l.UID() == uid {
			l.VM = vm // and not the one just read, than which the operations are older
			return nil
		}
	}
}

// list reads the operations of the machine, by name, oldest first.
func (l *look) list(ctx context.Context) ([]*v1alpha1.VirtualMachineOperation, error) {
	var list v1alpha1.VirtualMachineOperationList
	ofMachine := client.MatchingFields{"spec.virtualMachineName": l.Key().Name}
	if err := l.Live.List(ctx, &list, client.InNamespace(l.Key().Namespace), ofMachine); err != nil {
		return nil, fmt.Errorf("listing the operations of VirtualMachine %s: %w", l.Key(), err)
	}
	all := make([]*v1alpha1.VirtualMachineOperation, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	slices.SortFunc(all, byAge)
	return all, nil
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

// holds reports whether the operation holds the machine.
func (l *look) holds(o *v1alpha1.VirtualMachineOperation) bool {
	return l.VM != nil && claim.Holds(&l.VM.Status, string(o.UID))
}

// entry gives what undoing has of the operation, or nil.
func (l *look) entry(o *v1alpha1.VirtualMachineOperation) *v1alpha1.UndoingOperation {
	if l.VM == nil {
		return nil
	}
	for i := range l.VM.Status.Undoing {
		if l.VM.Status.Undoing[i].ID == string(o.UID) {
			return &l.VM.Status.Undoing[i]
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
	if l.VM == nil || l.VM.Status.ActiveOperation == nil || l.VM.Status.ActiveOperation.Origin != v1alpha1.OriginOperation {
		return nil
	}
	return l.of(l.VM.Status.ActiveOperation.ID)
}
