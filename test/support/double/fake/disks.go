package fake

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

var _ runtime.Disks = (*Runtime)(nil)

// Disk is a disk as it is in the world. It is attached to a machine if the machine's instance lists it.
type Disk struct {
	// ID is what the world calls it.
	ID string
	// Owner is the marker that it carries: the UID of a VirtualDisk.
	Owner types.UID
	// Name is the namespace and name of that VirtualDisk.
	Name string
	// Bytes is how large it is.
	Bytes int64
	// Image is the UID of the VMDiskImage that it was made from.
	Image types.UID
}

// Disks returns the disks of the world, oldest first.
func (w *World) Disks() []Disk {
	defer w.lock()()
	return slices.Clone(w.disks)
}

// LoseDisk removes a disk, as an administrator would behind our back.
func (w *World) LoseDisk(uid types.UID) {
	defer w.lock()()
	w.removeDisk(uid)
}

// disk gives the disk that carries the marker of that UID, or nil.
func (w *World) disk(uid types.UID) *Disk {
	i := slices.IndexFunc(w.disks, func(d Disk) bool { return d.Owner == uid })
	if i < 0 {
		return nil
	}
	return &w.disks[i]
}

func (w *World) removeDisk(uid types.UID) {
	w.disks = slices.DeleteFunc(w.disks, func(d Disk) bool { return d.Owner == uid })
}

// attachedTo gives the instances that the disk is attached to.
func (w *World) attachedTo(uid types.UID) (all []*instance) {
	for _, in := range w.instances {
		if in.has(uid) {
			all = append(all, in)
		}
	}
	return all
}

// has reports whether the disk of that UID is attached.
func (in *instance) has(uid types.UID) bool {
	return slices.ContainsFunc(in.Disks, func(d v1alpha1.AttachedDisk) bool { return d.UID == uid })
}

// ObserveDisk looks at the disk.
func (r *Runtime) ObserveDisk(ctx context.Context, d runtime.Disk) (seen runtime.DiskObservation, err error) {
	w := r.world
	err = r.do(ctx, request{
		Call: Call{Verb: runtime.VerbObserveDisk, Disk: d},
		plan: func() (*work, error) { return nil, nil },
		result: func() {
			there := w.disk(d.UID)
			if there == nil {
				return
			}
			seen = runtime.DiskObservation{Exists: true, ID: there.ID, Home: "store", Image: there.Image, Bytes: there.Bytes}
			for _, in := range w.attachedTo(d.UID) {
				seen.AttachedTo = append(seen.AttachedTo, cmp.Or(string(in.Owner), in.ID))
			}
		},
	})
	if err != nil {
		return runtime.DiskObservation{}, err
	}
	return seen, nil
}

// EnsureDisk makes or grows the disk.
func (r *Runtime) EnsureDisk(ctx context.Context, d runtime.Disk) (id string, err error) {
	w := r.world
	err = r.do(ctx, request{
		Call: Call{Verb: runtime.VerbEnsureDisk, Disk: d},
		plan: func() (*work, error) {
			earlier := w.earlierDisk(d)
			switch {
			case w.disk(d.UID) != nil:
			case d.ID != "":
				return nil, runtime.NewNotFound(nil, "there is no disk %s", d.ID)
			case earlier != nil && d.Earlier == "":
				return nil, runtime.NewHeldBack("svd", d.NamespacedName, "disk %s", earlier.ID)
			case earlier != nil && d.Earlier == runtime.TakeOver:
				return &work{commit: func(by cause) { w.takeOverDisk(earlier, d, by) }}, nil
			case d.Spec.Source != nil && d.Source == nil:
				return nil, runtime.NoSource(d)
			}
			return &work{commit: func(by cause) { w.ensureDisk(d, by) }}, nil
		},
		result: func() {
			if there := w.disk(d.UID); there != nil {
				id = there.ID
			}
		},
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// earlierDisk gives the disk that is marked for the same name with another UID, or nil.
func (w *World) earlierDisk(d runtime.Disk) *Disk {
	i := slices.IndexFunc(w.disks, func(there Disk) bool { return there.Name == d.String() && there.Owner != d.UID })
	if i < 0 {
		return nil
	}
	return &w.disks[i]
}

func (w *World) takeOverDisk(there *Disk, d runtime.Disk, by cause) {
	for _, in := range w.attachedTo(there.Owner) {
		i := slices.IndexFunc(in.Disks, func(on v1alpha1.AttachedDisk) bool { return on.UID == there.Owner })
		in.Disks[i].UID = d.UID
	}
	there.Owner = d.UID
	w.record(TakenOver, "", nil, by).Disk = d.UID
}

func (w *World) ensureDisk(d runtime.Disk, by cause) {
	there := w.disk(d.UID)
	switch {
	case there == nil:
		made := Disk{ID: w.newID("disk"), Owner: d.UID, Name: d.String(), Bytes: d.Bytes()}
		if d.Source != nil {
			made.Image = d.Source.Image
		}
		w.disks = append(w.disks, made)
		w.record(DiskCreated, "", nil, by).Disk = d.UID
	case there.Bytes < d.Bytes():
		there.Bytes = d.Bytes()
		w.record(DiskGrown, "", nil, by).Disk = d.UID
	}
}

// DeleteDisk destroys the disk.
func (r *Runtime) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	w := r.world
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbDeleteDisk, Disk: d},
		plan: func() (*work, error) {
			if holders := w.attachedTo(d.UID); len(holders) > 0 {
				return nil, runtime.NewInvalidState(nil, "the disk is attached to machine %s", holders[0].ID)
			}
			if w.disk(d.UID) == nil {
				return nil, nil
			}
			return &work{commit: func(by cause) {
				w.removeDisk(d.UID)
				w.record(DiskDeleted, "", nil, by).Disk = d.UID
			}}, nil
		},
	})
}

// Attach attaches the disk to the machine.
func (r *Runtime) Attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	w := r.world
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbAttach, Machine: m, Disk: d},
		plan: func() (*work, error) {
			in, done, err := w.attachment(m, d.UID, true)
			if err != nil || done {
				return nil, err
			}
			if w.disk(d.UID) == nil {
				return nil, runtime.NewNotFound(nil, "there is no disk of VirtualDisk %s", d)
			}
			if holders := w.attachedTo(d.UID); len(holders) > 0 {
				return nil, runtime.NewInvalidState(nil, "the disk is attached to machine %s", holders[0].ID)
			}
			return &work{kind: runtime.TaskReconfigure, change: attaching(d.UID, true), commit: func(by cause) {
				if w.disk(d.UID) != nil && len(w.attachedTo(d.UID)) == 0 {
					in.Disks = append(in.Disks, v1alpha1.AttachedDisk{Name: d.Name, UID: d.UID})
					w.record(DiskAttached, m.UID, in, by).Disk = d.UID
				}
			}}, nil
		},
	})
}

// Detach takes the disk off the machine.
func (r *Runtime) Detach(ctx context.Context, m runtime.Machine, uid types.UID) error {
	w := r.world
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbDetach, Machine: m, Disk: runtime.Disk{UID: uid}},
		plan: func() (*work, error) {
			in, done, err := w.attachment(m, uid, false)
			if err != nil || done {
				return nil, err
			}
			return &work{kind: runtime.TaskReconfigure, change: attaching(uid, false), commit: func(by cause) { w.detach(in, m.UID, uid, by) }}, nil
		},
	})
}

// attaching is the change of a task that attaches or detaches a disk.
func attaching(uid types.UID, attach bool) string { return fmt.Sprintf("attach %s: %t", uid, attach) }

// attachment gives the instance to which a disk is to be attached, or from which it is to be detached. It is done if that is so, or exactly
// that is in flight. Anything else that is in flight is an error, if there is something to do, or if it undoes what is so.
func (w *World) attachment(m runtime.Machine, disk types.UID, attach bool) (in *instance, done bool, err error) {
	in, err = w.existing(m)
	if err != nil {
		return nil, false, err
	}
	is := in.has(disk) == attach
	for _, t := range w.machine(m.UID).tasks {
		switch {
		case t.unseen:
		case t.change == attaching(disk, attach):
			done = true
		case !is || t.change == attaching(disk, !attach):
			return nil, false, conflict(t)
		}
	}
	return in, done || is, nil
}

func (w *World) detach(in *instance, machine, uid types.UID, by cause) {
	if in.has(uid) {
		in.Disks = slices.DeleteFunc(slices.Clone(in.Disks), func(d v1alpha1.AttachedDisk) bool { return d.UID == uid })
		w.record(DiskDetached, machine, in, by).Disk = uid
	}
}
