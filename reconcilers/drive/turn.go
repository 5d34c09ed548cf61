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

// Turn is a machine as one look found it, under its lock. It is written on, and thrown away after the first write.
type Turn struct {
	*Driver
	*pass
	// Time is when the look began.
	Time time.Time
	// VM is the VirtualMachine, read live. It is nil if it is gone.
	VM *v1alpha1.VirtualMachine

	at *sight
}

// sight is what a look at the runtime gave.
type sight struct {
	rt   *runtime.Client
	seen runtime.Observation
	err  error
}

// Look reads the VirtualMachine live, again if it was read before.
func (t *Turn) Look(ctx context.Context) (err error) {
	t.VM, err = t.read(ctx)
	return err
}

// UID is that of the VirtualMachine, and empty if that is gone.
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

// Unchanged looks whether the VirtualMachine is still exactly as it was looked at: the claim is, and so is what is wanted.
func (t *Turn) Unchanged(ctx context.Context) (bool, error) {
	now, err := t.read(ctx)
	return now != nil && now.UID == t.VM.UID && now.ResourceVersion == t.VM.ResourceVersion, err
}

// Observe looks at the machine on its runtime, once a turn.
func (t *Turn) Observe(ctx context.Context) (runtime.Observation, error) {
	if t.at == nil {
		t.observe(ctx)
	}
	return t.at.seen, t.at.err
}

func (t *Turn) observe(ctx context.Context) {
	t.at = &sight{}
	if t.at.rt, t.at.err = t.Runtimes(ctx, t.VM); t.at.err == nil {
		t.at.seen, t.at.err = t.at.rt.Observe(ctx, runtime.MachineOf(t.VM))
	}
}

// Runtime is that of the machine, once it was observed.
func (t *Turn) Runtime() *runtime.Client { return t.at.rt }

// observeOurs is Observe for whom nothing that is ours is as good as no machine.
func (t *Turn) observeOurs(ctx context.Context) (runtime.Observation, error) {
	seen, err := t.Observe(ctx)
	if runtime.NothingOfOurs(err) {
		return runtime.Observation{}, nil
	}
	return seen, err
}

// Tell tells the runtime something. Who calls it has seen before that the VirtualMachine is [Turn.Unchanged].
func (t *Turn) Tell(ctx context.Context, call func(context.Context, runtime.Machine) error) error {
	m := runtime.MachineOf(t.VM)
	if !t.VM.DeletionTimestamp.IsZero() && t.at != nil && t.at.rt != nil {
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

// disks reads the VirtualDisks live that are attached to the machine according to their status, or that it was observed with. Of these, one
// that does not exist, has another UID or is attached to another machine is left out: only a mark on the instance names it.
func (t *Turn) disks(ctx context.Context) (all []runtime.Disk, err error) {
	if !runtime.Can[runtime.Disks](t.at.rt) {
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
	for _, on := range t.at.seen.Disks {
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

// Disk reads the VirtualDisk live that the machine was observed with. It is nil unless a VirtualDisk of that name and UID is there, and is
// not attached to another machine according to its status.
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

// Write writes the status of the machine, with the resourceVersion of the look. Claim and phase change here.
func (t *Turn) Write(ctx context.Context) error {
	if err := t.Client.Status().Update(ctx, t.VM); err != nil {
		return fmt.Errorf("writing the status of VirtualMachine %s: %w", t.key, err)
	}
	return nil
}

// Troubled records an error of a runtime. It ignores the error that this process must wait for another one.
func (t *Turn) Troubled(doing string, err error) {
	if runtime.IsTakingOver(err) {
		t.Later()
		return
	}
	if runtime.IsReadOnly(err) {
		return // until a manager starts that is not
	}
	t.Trouble(fmt.Errorf("%s: %w", doing, err))
}
