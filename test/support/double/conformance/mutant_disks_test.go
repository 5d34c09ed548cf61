package conformance

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// brokenDisks is a Disks that breaks the contract in one way. What is nil, it keeps.
type brokenDisks struct {
	runtime.Disks

	observe func(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error)
	ensure  func(ctx context.Context, d runtime.Disk) (string, error)
	remove  func(ctx context.Context, d runtime.Disk) error
	attach  func(ctx context.Context, m runtime.Machine, d runtime.Disk) error
	detach  func(ctx context.Context, m runtime.Machine, disk types.UID) error
}

func (b *brokenDisks) ObserveDisk(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
	if b.observe != nil {
		return b.observe(ctx, d)
	}
	return b.Disks.ObserveDisk(ctx, d)
}

func (b *brokenDisks) EnsureDisk(ctx context.Context, d runtime.Disk) (string, error) {
	if b.ensure != nil {
		return b.ensure(ctx, d)
	}
	return b.Disks.EnsureDisk(ctx, d)
}

func (b *brokenDisks) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	if b.remove != nil {
		return b.remove(ctx, d)
	}
	return b.Disks.DeleteDisk(ctx, d)
}

func (b *brokenDisks) Attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	if b.attach != nil {
		return b.attach(ctx, m, d)
	}
	return b.Disks.Attach(ctx, m, d)
}

func (b *brokenDisks) Detach(ctx context.Context, m runtime.Machine, disk types.UID) error {
	if b.detach != nil {
		return b.detach(ctx, m, disk)
	}
	return b.Disks.Detach(ctx, m, disk)
}

// broken changes one thing of a runtime's disks.
func broken(change func(b *brokenDisks)) func(m *mutant) runtime.Disks {
	return func(m *mutant) runtime.Disks {
		b := &brokenDisks{Disks: m.Disks}
		change(b)
		return b
	}
}

// success turns errors of a kind into success.
func success(is func(error) bool, err error) error {
	if is(err) {
		return nil
	}
	return err
}

var diskMutants = map[string]mutant{
	"a disk is made again": {part: "a disk that was made and is gone is not made again",
		disk: broken(func(b *brokenDisks) {
			b.ensure = func(ctx context.Context, d runtime.Disk) (string, error) {
				d.ID = ""
				return b.Disks.EnsureDisk(ctx, d)
			}
		})},
	"a disk is made empty": {part: "a disk is made from its source, and not without it",
		disk: broken(func(b *brokenDisks) {
			b.ensure = func(ctx context.Context, d runtime.Disk) (string, error) {
				empty := *d.Spec
				empty.Source, d.Spec = nil, &empty
				return b.Disks.EnsureDisk(ctx, d)
			}
		})},
	"an absent disk is an error": {part: "a disk that does not exist",
		disk: broken(func(b *brokenDisks) {
			b.observe = func(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
				seen, err := b.Disks.ObserveDisk(ctx, d)
				if err == nil && !seen.Exists {
					err = runtime.NewNotFound(nil, "gone")
				}
				return seen, err
			}
		})},
	"a disk that does not exist is attached": {part: "a disk that does not exist",
		disk: broken(func(b *brokenDisks) {
			b.attach = func(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
				return success(runtime.IsNotFound, b.Disks.Attach(ctx, m, d))
			}
		})},
	"every look has another ID": {part: "ensuring a disk twice gives one",
		disk: broken(func(b *brokenDisks) {
			b.ensure = func(ctx context.Context, d runtime.Disk) (string, error) {
				id, err := b.Disks.EnsureDisk(ctx, d)
				return id + d.ID, err
			}
		})},
	"a lost making is taken for success": {part: "a disk whose making lost its reply is made once",
		disk: broken(func(b *brokenDisks) {
			b.ensure = func(ctx context.Context, d runtime.Disk) (string, error) {
				id, err := b.Disks.EnsureDisk(ctx, d)
				return id, success(runtime.IsUnavailable, err)
			}
		})},
	"a disk does not grow": {part: "a disk grows and never shrinks",
		disk: broken(func(b *brokenDisks) {
			b.ensure = func(ctx context.Context, d runtime.Disk) (string, error) {
				if d.ID != "" {
					return d.ID, nil
				}
				return b.Disks.EnsureDisk(ctx, d)
			}
		})},
	"a disk shrinks": {part: "a disk grows and never shrinks",
		disk: broken(func(b *brokenDisks) {
			var bytes int64
			b.ensure = func(ctx context.Context, d runtime.Disk) (string, error) {
				bytes = d.Bytes()
				return b.Disks.EnsureDisk(ctx, d)
			}
			b.observe = func(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
				seen, err := b.Disks.ObserveDisk(ctx, d)
				seen.Bytes = min(seen.Bytes, bytes)
				return seen, err
			}
		})},
	"a second deletion of a disk is an error": {part: "ensuring a disk twice gives one",
		disk: broken(func(b *brokenDisks) {
			b.remove = func(ctx context.Context, d runtime.Disk) error {
				if seen, err := b.Disks.ObserveDisk(ctx, d); err != nil || !seen.Exists {
					return runtime.NewNotFound(err, "gone")
				}
				return b.Disks.DeleteDisk(ctx, d)
			}
		})},
	"a deletion detaches": {part: "a disk that is attached is not deleted",
		disk: broken(func(b *brokenDisks) {
			b.remove = func(ctx context.Context, d runtime.Disk) error {
				return success(runtime.IsInvalidState, b.Disks.DeleteDisk(ctx, d))
			}
		})},
	"what another machine has can be attached": {part: "a disk that another machine has is not attached",
		disk: broken(func(b *brokenDisks) {
			b.attach = func(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
				return success(runtime.IsInvalidState, b.Disks.Attach(ctx, m, d))
			}
		})},
	"a detachment reaches any machine": {part: "a disk that another machine has is not attached",
		disk: broken(func(b *brokenDisks) {
			var holder runtime.Machine
			b.attach = func(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
				err := b.Disks.Attach(ctx, m, d)
				if err == nil {
					holder = m
				}
				return err
			}
			b.detach = func(ctx context.Context, _ runtime.Machine, disk types.UID) error {
				return b.Disks.Detach(ctx, holder, disk)
			}
		})},
	"a second attachment is an error": {part: "a disk is attached and detached, twice is success",
		disk: broken(func(b *brokenDisks) {
			b.attach = func(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
				if seen, err := b.Disks.ObserveDisk(ctx, d); err == nil && len(seen.AttachedTo) > 0 {
					return runtime.NewInvalidState(nil, "attached")
				}
				return b.Disks.Attach(ctx, m, d)
			}
		})},
	"a second detachment is an error": {part: "a disk is attached and detached, twice is success",
		disk: broken(func(b *brokenDisks) {
			held := map[types.UID]bool{}
			b.attach = func(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
				held[d.UID] = true
				return b.Disks.Attach(ctx, m, d)
			}
			b.detach = func(ctx context.Context, m runtime.Machine, disk types.UID) error {
				if !held[disk] {
					return runtime.NewInvalidState(nil, "not attached")
				}
				held[disk] = false
				return b.Disks.Detach(ctx, m, disk)
			}
		})},
	"only one disk is shown": {part: "two disks on a machine",
		observe: seen(func(_ *mutant, o *runtime.Observation, _ *error) { o.Disks = o.Disks[:min(1, len(o.Disks))] })},
	"who has a disk is not shown": {part: "a disk is attached and detached, twice is success",
		disk: broken(func(b *brokenDisks) {
			b.observe = func(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
				seen, err := b.Disks.ObserveDisk(ctx, d)
				seen.AttachedTo = nil
				return seen, err
			}
		})},
	"disks do not matter to a machine that is looked at": {part: "a disk is attached and detached, twice is success",
		observe: seen(func(_ *mutant, o *runtime.Observation, _ *error) { o.Disks = nil })},
	"only machines that are off take disks": {part: "a disk is attached while its machine is on",
		disk: func(m *mutant) runtime.Disks {
			b := &brokenDisks{Disks: m.Disks}
			b.attach = func(ctx context.Context, vm runtime.Machine, d runtime.Disk) error {
				if o, err := m.both.Observe(ctx, vm); err == nil && o.Incarnation != "" {
					return nil
				}
				return b.Disks.Attach(ctx, vm, d)
			}
			return b
		}},
	"a machine takes its disks with it": {part: "deleting a machine leaves its disks",
		remove: func(m *mutant, ctx context.Context, vm runtime.Machine) error {
			m.count++
			return m.both.Delete(ctx, vm)
		},
		disk: func(m *mutant) runtime.Disks {
			b := &brokenDisks{Disks: m.Disks}
			b.observe = func(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
				seen, err := b.Disks.ObserveDisk(ctx, d)
				if m.count == 0 || len(seen.AttachedTo) > 0 {
					return seen, err
				}
				return runtime.DiskObservation{}, b.Disks.DeleteDisk(ctx, d)
			}
			return b
		}},
	"a machine that is not there takes disks": {part: "a disk and a machine that is not there",
		disk: broken(func(b *brokenDisks) {
			b.attach = func(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
				return success(runtime.IsNotFound, b.Disks.Attach(ctx, m, d))
			}
		})},
	"what is being attached counts as detached": {part: "an attachment in flight can be seen, and nothing else goes with it",
		disk: broken(func(b *brokenDisks) {
			b.detach = func(ctx context.Context, m runtime.Machine, disk types.UID) error {
				return success(runtime.IsInvalidState, b.Disks.Detach(ctx, m, disk))
			}
		})},
	"an attachment in flight is not shown": {part: "an attachment in flight can be seen, and nothing else goes with it",
		observe: seen(func(_ *mutant, o *runtime.Observation, _ *error) {
			o.InFlight = slices.DeleteFunc(o.InFlight, func(t runtime.Task) bool { return t.Kind == runtime.TaskReconfigure })
		})},
	"an ended context does not matter to a disk": {part: "calls about disks whose context has ended do nothing",
		disk: broken(func(b *brokenDisks) {
			b.ensure = func(ctx context.Context, d runtime.Disk) (string, error) {
				return b.Disks.EnsureDisk(context.WithoutCancel(ctx), d)
			}
		})},
}

func init() { maps.Copy(mutants, diskMutants) }
