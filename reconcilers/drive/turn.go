package drive

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Turn is a machine as read under its lock. It is modified in place and discarded after the first write.
type Turn struct {
	*Driver
	*pass
	// Time is when the turn began.
	Time time.Time
	// VM is the VirtualMachine, read live. It is nil if it does not exist.
	VM *v1alpha1.VirtualMachine

	observed *observation
}

// observation is the result of observing the machine on its runtime.
type observation struct {
	rt   *runtime.Client
	seen runtime.Observation
	err  error
}

// Reload reads the VirtualMachine live, replacing an earlier read.
func (t *Turn) Reload(ctx context.Context) (err error) {
	t.VM, err = t.read(ctx)
	return err
}

// UID returns the UID of the VirtualMachine, or "" if it does not exist.
func (t *Turn) UID() types.UID {
	if t.VM == nil {
		return ""
	}
	return t.VM.UID
}

func (t *Turn) read(ctx context.Context) (*v1alpha1.VirtualMachine, error) {
	vm := &v1alpha1.VirtualMachine{}
	switch err := t.Live.Get(ctx, t.key, vm); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading VirtualMachine %s: %w", t.key, err)
	}
	return vm, nil
}

// Unchanged reads the VirtualMachine live and reports whether it is unchanged, and with it the claim and the spec.
func (t *Turn) Unchanged(ctx context.Context) (bool, error) {
	now, err := t.read(ctx)
	return now != nil && now.UID == t.VM.UID && now.ResourceVersion == t.VM.ResourceVersion, err
}

// Observe observes the machine on its runtime, once per turn.
func (t *Turn) Observe(ctx context.Context) (runtime.Observation, error) {
	if t.observed == nil {
		t.observe(ctx)
	}
	return t.observed.seen, t.observed.err
}

func (t *Turn) observe(ctx context.Context) {
	t.observed = &observation{}
	if t.observed.rt, t.observed.err = t.Runtimes(ctx, t.VM); t.observed.err == nil {
		t.observed.seen, t.observed.err = t.observed.rt.Observe(ctx, runtime.MachineOf(t.VM))
	}
}

// Runtime returns the runtime of the machine. Observe must have been called.
func (t *Turn) Runtime() *runtime.Client { return t.observed.rt }

// observeOurs is Observe, except that a machine that was never made, and that will not be observed, counts as no machine, and so does an
// instance that is not ours. What may have been made is waited for.
func (t *Turn) observeOurs(ctx context.Context) (runtime.Observation, error) {
	seen, err := t.Observe(ctx)
	if runtime.IsOwnedByAnother(err) || runtime.NothingOfOurs(err) && !t.VM.MayExist() {
		return runtime.Observation{}, nil
	}
	return seen, err
}

// Call calls the runtime. The caller has checked with [Turn.Unchanged].
func (t *Turn) Call(ctx context.Context, call func(context.Context, runtime.Machine) error) error {
	m := runtime.MachineOf(t.VM)
	if !t.VM.DeletionTimestamp.IsZero() && t.observed != nil && t.observed.rt != nil {
		disks, err := t.disks(ctx)
		if err != nil {
			return err
		}
		m.Disks = disks
	}
	t.sent = true
	err := call(ctx, m)
	t.sent = err == nil
	return err
}

// disks reads the VirtualDisks live that are attached to the machine according to their status or to the observation.
// Of the latter, a disk that does not exist, has another UID or is attached to another machine is left out: only a
// mark on the instance names it.
func (t *Turn) disks(ctx context.Context) (all []runtime.Disk, err error) {
	if !runtime.Can[runtime.Disks](t.observed.rt) {
		return nil, nil
	}
	var held v1alpha1.VirtualDiskList
	err = t.Live.List(ctx, &held, client.InNamespace(t.key.Namespace), client.MatchingFields{v1alpha1.FieldDiskHolder: t.key.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the VirtualDisks of VirtualMachine %s: %w", t.key, err)
	}
	for i := range held.Items {
		if d := runtime.DiskOf(&held.Items[i]); d.Holder == t.VM.UID {
			all = append(all, d)
		}
	}
	for _, on := range t.observed.seen.Disks {
		if slices.ContainsFunc(all, func(d runtime.Disk) bool { return d.UID == on.UID }) {
			continue
		}
		d, err := t.Disk(ctx, on)
		if err != nil {
			return nil, err
		}
		if d != nil {
			all = append(all, *d)
		}
	}
	return all, nil
}

// Disk reads an observed disk's VirtualDisk live. It returns nil if no VirtualDisk has that name and UID, or if its
// status says that it is attached to another machine.
func (t *Turn) Disk(ctx context.Context, on v1alpha1.AttachedDisk) (*runtime.Disk, error) {
	d := &v1alpha1.VirtualDisk{}
	err := t.Live.Get(ctx, types.NamespacedName{Namespace: t.key.Namespace, Name: on.Name}, d)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading VirtualDisk %s: %w", on.Name, err)
	case d.UID != on.UID, d.Status.AttachedTo != nil && d.Status.AttachedTo.UID != t.VM.UID:
		return nil, nil
	}
	of := runtime.DiskOf(d)
	return &of, nil
}

// Write updates the status of the machine with the resourceVersion that was read. Claim and phase change only here.
func (t *Turn) Write(ctx context.Context) error {
	if err := t.Client.Status().Update(ctx, t.VM); err != nil {
		return fmt.Errorf("writing the status of VirtualMachine %s: %w", t.key, err)
	}
	return nil
}

// Troubled records an error of a runtime. Waiting for another process and read-only mode are not errors.
func (t *Turn) Troubled(doing string, err error) {
	if runtime.IsTakingOver(err) {
		t.Later()
		return
	}
	if runtime.IsReadOnly(err) {
		return // until a manager starts without read-only mode
	}
	t.Trouble(fmt.Errorf("%s: %w", doing, err))
}
