//go:build !race

package images

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// standing is a runtime on which every machine exists, is off, and has the disk that it boots from, until it is deleted. What a call costs
// does not depend on the number of machines.
type standing struct {
	mu   sync.Mutex
	disk map[types.UID]v1alpha1.AttachedDisk // by machine
	gone map[types.UID]bool                  // machines and disks
}

func newStanding() *standing {
	return &standing{disk: map[types.UID]v1alpha1.AttachedDisk{}, gone: map[types.UID]bool{}}
}

func (r *standing) add(machine types.UID, disk v1alpha1.AttachedDisk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disk[machine] = disk
}

func (r *standing) remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[uid] = true
}

func (r *standing) Observe(_ context.Context, m runtime.Machine) (runtime.Observation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone[m.UID] {
		return runtime.Observation{}, nil
	}
	return runtime.Observation{
		Exists: true, InstanceID: "instance-" + string(m.UID), Power: v1alpha1.PowerStopped, NodeName: "node-1", Disks: []v1alpha1.AttachedDisk{r.disk[m.UID]},
	}, nil
}

func (r *standing) Ensure(_ context.Context, m runtime.Machine) (string, error) {
	return "instance-" + string(m.UID), nil
}

func (*standing) PowerOn(context.Context, runtime.Machine) error { return nil }

func (*standing) PowerOff(context.Context, runtime.Machine, runtime.Mode) error { return nil }

func (*standing) Cancel(context.Context, runtime.Machine, string) error { return nil }

func (r *standing) Delete(_ context.Context, m runtime.Machine) error {
	r.remove(m.UID)
	return nil
}

func (r *standing) ObserveDisk(_ context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone[d.UID] {
		return runtime.DiskObservation{}, nil
	}
	seen := runtime.DiskObservation{Exists: true, ID: "disk-" + string(d.UID), Bytes: d.Bytes()}
	if d.Holder != "" && !r.gone[d.Holder] {
		seen.AttachedTo = []string{string(d.Holder)}
	}
	return seen, nil
}

func (*standing) EnsureDisk(_ context.Context, d runtime.Disk) (string, error) {
	return "disk-" + string(d.UID), nil
}

func (r *standing) DeleteDisk(_ context.Context, d runtime.Disk) error {
	r.remove(d.UID)
	return nil
}

func (*standing) Attach(context.Context, runtime.Machine, runtime.Disk) error { return nil }

func (*standing) Detach(context.Context, runtime.Machine, types.UID) error { return nil }

func (*standing) DisksAreFixed() {}
