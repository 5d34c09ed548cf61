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
	// disks are the VirtualDisks for a call, which Unchanged has read live.
	disks []runtime.Disk
}

// observation is the result of observing the machine on its runtime.
type observation struct {
	rt   *runtime.Client
	seen runtime.Observation
	err  error
	// disks are the VirtualDisks that it looked for.
	disks []runtime.Disk
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
	if vm.StatusOfAnother() {
		vm.Status = v1alpha1.VirtualMachineStatus{}
	}
	return vm, nil
}

// Unchanged reads the VirtualMachine live and reports whether it is unchanged, and with it the claim and the spec. Before that, it reads the
// VirtualDisks for the call that follows.
func (t *Turn) Unchanged(ctx context.Context) (_ bool, err error) {
	if t.mayHaveDisks() {
		if t.disks, err = t.readDisks(ctx, t.Live); err != nil {
			return false, err
		}
	}
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
	m := runtime.MachineOf(t.VM)
	if t.observed.rt, t.observed.err = t.Runtimes(ctx, t.VM); t.observed.err == nil {
		// From the cache: what was recorded a moment ago is attached once more, which changes nothing, and what is detached is read live.
		t.observed.disks, t.observed.err = t.readDisks(ctx, t.Client)
		m.Disks = t.observed.disks
	}
	if t.observed.err == nil {
		t.observed.seen, t.observed.err = t.observed.rt.Observe(ctx, m)
	}
}

// LookedFor reports whether Observe looked for a VirtualDisk on the machine. One that was attached a moment ago may be missing in the cache.
func (t *Turn) LookedFor(disk types.UID) bool {
	return slices.ContainsFunc(t.observed.disks, func(d runtime.Disk) bool { return d.UID == disk })
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
	m.Disks = t.disks
	t.sent = true
	err := call(ctx, m)
	t.sent = err == nil
	return err
}

// mayHaveDisks spares the live reads for machines without disks.
func (t *Turn) mayHaveDisks() bool {
	return !t.VM.DeletionTimestamp.IsZero() || len(t.VM.BlockDevices()) > 0 || len(t.VM.Status.Disks) > 0
}

// readDisks reads the VirtualDisks that are attached to the machine according to their status, and those that its spec or the observation names
// and that are attached to no other machine.
func (t *Turn) readDisks(ctx context.Context, from client.Reader) (all []runtime.Disk, err error) {
	if t.observed == nil || t.observed.rt == nil || !runtime.Can[runtime.Disks](t.observed.rt) {
		return nil, nil
	}
	var held v1alpha1.VirtualDiskList
	err = from.List(ctx, &held, client.InNamespace(t.key.Namespace), client.MatchingFields{v1alpha1.FieldDiskHolder: t.key.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the VirtualDisks of VirtualMachine %s: %w", t.key, err)
	}
	for i := range held.Items {
		if d := &held.Items[i]; d.Status.AttachedTo.UID == t.VM.UID && !d.StatusOfAnother() {
			all = append(all, runtime.DiskOf(d))
		}
	}
	add := func(on v1alpha1.AttachedDisk) error {
		if slices.ContainsFunc(all, func(d runtime.Disk) bool { return d.Name == on.Name }) {
			return nil
		}
		d, err := t.disk(ctx, from, on)
		if err == nil && d != nil {
			all = append(all, *d)
		}
		return err
	}
	for _, ref := range t.VM.BlockDevices() {
		if err := add(v1alpha1.AttachedDisk{Name: ref.Name}); err != nil {
			return nil, err
		}
	}
	for _, on := range t.observed.seen.Disks {
		if err := add(on); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Disk reads an observed disk's VirtualDisk live. It returns nil if no VirtualDisk has that name and UID, or if its
// status says that it is attached to another machine.
func (t *Turn) Disk(ctx context.Context, on v1alpha1.AttachedDisk) (*runtime.Disk, error) {
	return t.disk(ctx, t.Live, on)
}

func (t *Turn) disk(ctx context.Context, from client.Reader, on v1alpha1.AttachedDisk) (*runtime.Disk, error) {
	d := &v1alpha1.VirtualDisk{}
	err := from.Get(ctx, types.NamespacedName{Namespace: t.key.Namespace, Name: on.Name}, d)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading VirtualDisk %s: %w", on.Name, err)
	case on.UID != "" && d.UID != on.UID, d.StatusOfAnother(), d.Status.AttachedTo != nil && d.Status.AttachedTo.UID != t.VM.UID:
		return nil, nil
	}
	of := runtime.DiskOf(d)
	return &of, nil
}

// Write updates the status of the machine with the resourceVersion that was read. Claim and phase change only here.
func (t *Turn) Write(ctx context.Context) error {
	t.VM.Status.UID = t.VM.UID
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
		return // until a process starts for which there is no halt
	}
	t.Trouble(fmt.Errorf("%s: %w", doing, err))
}
