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

// view is what one turn has read. It is modified in place and discarded after the first write.
type view struct {
	*drive.Turn
	operations []*v1alpha1.VirtualMachineOperation // of this machine, oldest first
	undecided  map[types.UID]bool                  // operations that could not be evaluated in this pass
}

// read reads live, the machine before its operations: then no claim in the machine's status is newer than the
// operations, and a write of the machine succeeds only if its claim is unchanged. In the other order, a process that
// is slow between the reads could give the machine to an operation that has ended, or drop one that it has not read.
//
// An operation with another machine UID may belong to a machine created since. In that case both are read again.
func (v *view) read(ctx context.Context) (err error) {
	for {
		if v.operations, err = v.list(ctx); err != nil {
			return err
		}
		vm, uid := v.VM, v.UID()
		if !slices.ContainsFunc(v.unfinished(), func(o *v1alpha1.VirtualMachineOperation) bool { return o.Spec.VirtualMachineUID != uid }) {
			return nil
		}
		if err = v.Reload(ctx); err != nil {
			return err
		}
		if v.UID() == uid {
			v.VM = vm // keep the earlier read: the operations are older than the one just made
			return nil
		}
	}
}

// list reads the operations of the machine live, oldest first.
func (v *view) list(ctx context.Context) ([]*v1alpha1.VirtualMachineOperation, error) {
	var list v1alpha1.VirtualMachineOperationList
	ofMachine := client.MatchingFields{"spec.virtualMachineName": v.Key().Name}
	if err := v.Live.List(ctx, &list, client.InNamespace(v.Key().Namespace), ofMachine); err != nil {
		return nil, fmt.Errorf("listing the operations of VirtualMachine %s: %w", v.Key(), err)
	}
	all := make([]*v1alpha1.VirtualMachineOperation, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	slices.SortFunc(all, byAge)
	return all, nil
}

// byAge orders operations by creation. The API server's timestamps have whole seconds, so the webhook's stamp orders
// within a second; the UID breaks ties.
func byAge(a, b *v1alpha1.VirtualMachineOperation) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Spec.RequestedAt, b.Spec.RequestedAt),
		cmp.Compare(a.UID, b.UID),
	)
}

// unfinished returns the operations that have not ended, oldest first.
func (v *view) unfinished() []*v1alpha1.VirtualMachineOperation {
	return slices.DeleteFunc(slices.Clone(v.operations), (*v1alpha1.VirtualMachineOperation).Finished)
}

func (v *view) holds(o *v1alpha1.VirtualMachineOperation) bool {
	return v.VM != nil && claim.Holds(&v.VM.Status, string(o.UID))
}

// entry returns the entry of undoing for the operation, or nil.
func (v *view) entry(o *v1alpha1.VirtualMachineOperation) *v1alpha1.UndoingOperation {
	if v.VM == nil {
		return nil
	}
	for i := range v.VM.Status.Undoing {
		if v.VM.Status.Undoing[i].ID == string(o.UID) {
			return &v.VM.Status.Undoing[i]
		}
	}
	return nil
}

// byUID returns the operation with that UID, or nil.
func (v *view) byUID(id string) *v1alpha1.VirtualMachineOperation {
	i := slices.IndexFunc(v.operations, func(o *v1alpha1.VirtualMachineOperation) bool { return string(o.UID) == id })
	if i < 0 {
		return nil
	}
	return v.operations[i]
}

// holder returns the operation that holds the machine, or nil if there is none.
func (v *view) holder() *v1alpha1.VirtualMachineOperation {
	if v.VM == nil || v.VM.Status.ActiveOperation == nil || v.VM.Status.ActiveOperation.Origin != v1alpha1.OriginOperation {
		return nil
	}
	return v.byUID(v.VM.Status.ActiveOperation.ID)
}
