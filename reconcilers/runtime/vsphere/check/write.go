package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/template"
)

// Places are where the objects of a check are made, by inventory path.
type Places struct{ Folder, ResourcePool, Datastore, Network v1alpha1.InventoryPath }

// writer makes a template, two machines and a disk, as Sallyport would, and removes them.
type writer struct {
	server   *session.Server
	runtime  *disk.Runtime
	places   Places
	name     string // of what it makes
	owner    kubetypes.UID
	machines [2]runtime.Machine
	disk     runtime.Disk
}

// patience is how long vCenter may take for a step, such as the clone of a machine without disks.
const patience = 5 * time.Minute

// Write returns the facts that need a template, machines and a disk, and what removes them, which is to be called in any case. All of them have
// names that begin with sallyport-check-.
func Write(server *session.Server, places Places) (facts []Fact, remove func(context.Context) error) {
	w := &writer{server: server, runtime: disk.New(server), places: places, name: "sallyport-check-" + uuid.NewString()[:8], owner: kubetypes.UID(uuid.NewString())}
	for i := range w.machines {
		w.machines[i] = w.machine(i)
	}
	w.disk = runtime.Disk{
		NamespacedName: kubetypes.NamespacedName{Namespace: w.name, Name: "disk"}, UID: kubetypes.UID(uuid.NewString()),
		Spec: &v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{Datastore: places.Datastore}}},
	}
	return []Fact{
		{"an OVA is imported, renamed, and becomes a template", w.makeTemplate, true},
		{"a clone has the instance UUID and the extraConfig that it was given", w.clone, true},
		{"of two changes that name the same changeVersion, the second is refused", w.lock, false},
		{"a machine is powered on and off", w.power, false},
		{"a First Class Disk is created, and found by its metadata", w.makeDisk, true},
		{"a disk that is attached is the device with its ID, and names the machine as its consumer", w.attach, true},
		{"a disk that a machine has is not attached to another", w.attachTwice, false},
		{"a disk that a machine has is not deleted", w.deleteAttached, false},
		{"a disk grows", w.grow, false},
		{"a disk is detached", w.detach, false},
		{"a machine that is destroyed leaves its disk", w.destroyHolder, false},
		{"a disk is deleted", w.deleteDisk, false},
	}, w.remove
}

func (w *writer) machine(i int) runtime.Machine {
	return runtime.Machine{
		NamespacedName: kubetypes.NamespacedName{Namespace: w.name, Name: fmt.Sprintf("machine-%d", i)}, UID: kubetypes.UID(uuid.NewString()),
		Spec: &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{Clone: &v1alpha1.VSphereClone{
			Template: v1alpha1.VSphereCloneSource{InventoryPath: w.places.Folder + "/" + v1alpha1.InventoryPath(w.name)},
			Folder:   w.places.Folder, ResourcePool: w.places.ResourcePool, Datastore: w.places.Datastore,
			Networks: []v1alpha1.InventoryPath{w.places.Network},
		}}}},
	}
}

// domain is the failure domain of the template.
func (w *writer) domain() templates.Domain {
	return templates.Domain{
		Owner: w.owner, Namespace: w.name, Object: "template", Spec: &v1alpha1.VSphereTemplateSpec{Name: w.name},
		Domain: &v1alpha1.VSphereFailureDomain{
			Name: "check", Folder: w.places.Folder, ResourcePool: w.places.ResourcePool, Datastore: w.places.Datastore, Network: w.places.Network,
		},
	}
}

func (w *writer) makeTemplate(ctx context.Context) (string, error) {
	archive, err := newArchive()
	if err != nil {
		return "", err
	}
	store, domain := template.New(w.server, allowed), w.domain()
	item, err := store.Import(ctx, domain, templates.Import{
		Name: w.name + "-import", Mark: templates.Mark{Release: "1", Digest: "check", Made: time.Now()}, Archive: archive,
	}, func(int32) {})
	if err != nil {
		return "", err
	}
	if item, err = store.Rename(ctx, domain, item, w.name); err != nil {
		return "", err
	}
	if item, err = store.Finish(ctx, domain, item); err == nil && item.Stage != templates.Whole {
		err = errors.New("it did not become a template")
	}
	return w.name, err
}

// removeTemplate destroys what is left of the template.
func (w *writer) removeTemplate(ctx context.Context) error {
	store, domain := template.New(w.server, allowed), w.domain()
	view, err := store.Look(ctx, domain)
	for _, item := range view.Items {
		err = errors.Join(err, store.Destroy(ctx, domain, item))
	}
	return err
}

// allowed lets the check use all places: who runs it has named them.
func allowed(context.Context, *v1alpha1.VSphereTemplate) error { return nil }

func (w *writer) clone(ctx context.Context) (string, error) {
	for i := range w.machines {
		m := &w.machines[i]
		err := until(ctx, func() (done bool, err error) {
			m.InstanceID, err = w.runtime.Ensure(ctx, *m)
			return m.InstanceID != "", err
		})
		if err != nil {
			return "", err
		}
		if !strings.EqualFold(m.InstanceID, string(m.UID)) {
			return "", fmt.Errorf("it has the instance UUID %s, not %s", m.InstanceID, m.UID)
		}
	}
	return "", nil
}

func (w *writer) lock(ctx context.Context) (string, error) {
	vm, err := w.read(ctx, w.machines[0])
	if err != nil {
		return "", err
	}
	for i, note := range []string{"first", "second"} {
		err := w.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
			return object.NewVirtualMachine(c, vm.Self).Reconfigure(ctx, types.VirtualMachineConfigSpec{ChangeVersion: vm.Config.ChangeVersion, Annotation: note})
		})
		switch {
		case i == 0 && err != nil:
			return "", err
		case i == 1 && err == nil:
			return "", errors.New("vCenter carried out both")
		case i == 1 && !fault.Is(err, &types.ConcurrentAccess{}):
			return "", fmt.Errorf("it was refused with another fault: %w", err)
		}
	}
	return "", nil
}

func (w *writer) power(ctx context.Context) (string, error) {
	m := w.machines[0]
	if err := w.runtime.PowerOn(ctx, m); err != nil {
		return "", err
	}
	on, err := w.quiet(ctx, m)
	if err == nil && (on.Power != v1alpha1.PowerRunning || on.Incarnation == "") {
		err = fmt.Errorf("it is %s, of incarnation %q", on.Power, on.Incarnation)
	}
	if err != nil {
		return "", err
	}
	if err := w.runtime.PowerOff(ctx, m, runtime.Forced); err != nil {
		return "", err
	}
	off, err := w.quiet(ctx, m)
	if err == nil && off.Power != v1alpha1.PowerStopped {
		err = fmt.Errorf("it is %s", off.Power)
	}
	return "incarnation " + on.Incarnation, err
}

func (w *writer) makeDisk(ctx context.Context) (string, error) {
	made := ""
	err := until(ctx, func() (done bool, err error) {
		made, err = w.runtime.EnsureDisk(ctx, w.disk)
		return made != "", err
	})
	if err != nil {
		return "", err
	}
	found, err := w.runtime.EnsureDisk(ctx, w.disk) // still without the ID: by its metadata
	w.disk.ID = made
	if err == nil && found != made {
		err = fmt.Errorf("by its metadata, disk %q was found in place of %s", found, made)
	}
	return made, err
}

func (w *writer) attach(ctx context.Context) (string, error) {
	m := w.machines[0].With(w.disk)
	if err := w.runtime.Attach(ctx, m, w.disk); err != nil {
		return "", err
	}
	seen, err := w.quiet(ctx, m)
	if err != nil {
		return "", err
	}
	if len(seen.Disks) != 1 {
		return "", errors.New("no device of the machine has the ID of the disk")
	}
	of, err := w.runtime.ObserveDisk(ctx, w.disk)
	if err == nil && !slices.Equal(of.AttachedTo, []string{string(m.UID)}) {
		err = fmt.Errorf("vCenter says that the disk is attached to %v, not to %s", of.AttachedTo, m.UID)
	}
	return "", err
}

func (w *writer) attachTwice(ctx context.Context) (string, error) {
	other, err := w.read(ctx, w.machines[1])
	if err != nil {
		return "", err
	}
	of, err := w.runtime.ObserveDisk(ctx, w.disk)
	if err != nil {
		return "", err
	}
	err = w.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		begun, err := methods.AttachDisk_Task(ctx, c, &types.AttachDisk_Task{
			This: other.Self, DiskId: types.ID{Id: w.disk.ID}, Datastore: types.ManagedObjectReference{Type: "Datastore", Value: of.Home}, ControllerKey: controllerOf(other),
		})
		if err != nil {
			return nil, err
		}
		return object.NewTask(c, begun.Returnval), nil
	})
	return refused(err)
}

// refused returns what vCenter says about a change that it must refuse because a machine has the disk. Any other error proves nothing: the
// account may lack a privilege, or the reply may be lost.
func refused(err error) (string, error) {
	switch {
	case err == nil:
		return "", errors.New("vCenter carried it out")
	case fault.Is(err, &types.InvalidState{}), fault.Is(err, &types.ResourceInUse{}), fault.Is(err, &types.FileLocked{}):
		return runtime.Message(err), nil
	}
	return "", fmt.Errorf("it failed for another reason: %w", err)
}

// controllerOf returns the key of a SCSI controller of a machine, 0 if it has none.
func controllerOf(vm *mo.VirtualMachine) int32 {
	for _, device := range vm.Config.Hardware.Device {
		if controller, is := device.(types.BaseVirtualSCSIController); is {
			return controller.GetVirtualSCSIController().Key
		}
	}
	return 0
}

func (w *writer) deleteAttached(ctx context.Context) (string, error) {
	of, err := w.runtime.ObserveDisk(ctx, w.disk)
	if err != nil {
		return "", err
	}
	err = w.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) {
		begun, err := methods.DeleteVStorageObject_Task(ctx, c, &types.DeleteVStorageObject_Task{
			This: *c.ServiceContent.VStorageObjectManager, Id: types.ID{Id: w.disk.ID}, Datastore: types.ManagedObjectReference{Type: "Datastore", Value: of.Home},
		})
		if err != nil {
			return nil, err
		}
		return object.NewTask(c, begun.Returnval), nil
	})
	return refused(err)
}

func (w *writer) grow(ctx context.Context) (string, error) {
	w.disk.Spec.Size = resource.MustParse("2Gi")
	if _, err := w.runtime.EnsureDisk(ctx, w.disk); err != nil {
		return "", err
	}
	of, err := w.runtime.ObserveDisk(ctx, w.disk)
	if err == nil && of.Bytes != w.disk.Bytes() {
		err = fmt.Errorf("it has %d bytes, not %d", of.Bytes, w.disk.Bytes())
	}
	return "while a machine has it", err
}

func (w *writer) detach(ctx context.Context) (string, error) {
	if err := w.runtime.Detach(ctx, w.machines[0].With(w.disk), w.disk.UID); err != nil {
		return "", err
	}
	return "", w.free(ctx)
}

// free returns an error unless the disk is there, and no machine has it.
func (w *writer) free(ctx context.Context) error {
	of, err := w.runtime.ObserveDisk(ctx, w.disk)
	switch {
	case err != nil:
		return err
	case !of.Exists:
		return errors.New("the disk is gone")
	case len(of.AttachedTo) > 0:
		return fmt.Errorf("vCenter says that the disk is attached to %v", of.AttachedTo)
	}
	return nil
}

func (w *writer) destroyHolder(ctx context.Context) (string, error) {
	m := w.machines[0].With(w.disk)
	if err := w.runtime.Attach(ctx, m, w.disk); err != nil {
		return "", err
	}
	vm, err := w.read(ctx, m)
	if err != nil {
		return "", err
	}
	if err := w.destroy(ctx, vm.Self); err != nil { // as a user of vCenter does, with the disk
		return "", err
	}
	return "", w.free(ctx)
}

func (w *writer) deleteDisk(ctx context.Context) (string, error) {
	if err := w.runtime.DeleteDisk(ctx, w.disk); err != nil {
		return "", err
	}
	of, err := w.runtime.ObserveDisk(ctx, w.disk)
	if err == nil && of.Exists {
		err = errors.New("it is still there")
	}
	return "", err
}

// remove removes what is left.
func (w *writer) remove(ctx context.Context) (err error) {
	for _, m := range w.machines {
		left := w.runtime.Delete(ctx, m.With(w.disk))
		err = errors.Join(err, left)
		if left == nil {
			err = errors.Join(err, until(ctx, func() (bool, error) {
				seen, err := w.runtime.Observe(ctx, m)
				return !seen.Exists, err
			}))
		}
	}
	err = errors.Join(err, w.runtime.DeleteDisk(ctx, w.disk))
	if err = errors.Join(err, w.removeTemplate(ctx)); err != nil {
		return fmt.Errorf("removing what begins with %s in %s (do it in vCenter): %w", w.name, w.places.Folder, err)
	}
	return nil
}

func (w *writer) destroy(ctx context.Context, ref types.ManagedObjectReference) error {
	return w.carryOut(ctx, func(c *vim25.Client) (*object.Task, error) { return object.NewVirtualMachine(c, ref).Destroy(ctx) })
}

// quiet waits until no task is in flight for a machine.
func (w *writer) quiet(ctx context.Context, m runtime.Machine) (seen runtime.Observation, err error) {
	err = until(ctx, func() (done bool, err error) {
		seen, err = w.runtime.Observe(ctx, m)
		return seen.Quiet(), err
	})
	return seen, err
}

// read reads a machine by its instance UUID.
func (w *writer) read(ctx context.Context, m runtime.Machine) (*mo.VirtualMachine, error) {
	var vm mo.VirtualMachine
	err := w.server.Call(ctx, func(c *vim25.Client) error {
		found, err := methods.FindByUuid(ctx, c, &types.FindByUuid{This: *c.ServiceContent.SearchIndex, Uuid: m.InstanceID, VmSearch: true, InstanceUuid: new(true)})
		if err != nil {
			return err
		}
		if found.Returnval == nil {
			return runtime.NewNotFound(nil, "vCenter does not find the machine by its instance UUID %s", m.InstanceID)
		}
		return property.DefaultCollector(c).RetrieveOne(ctx, *found.Returnval, []string{"config.changeVersion", "config.hardware.device"}, &vm)
	})
	return &vm, err
}

// carryOut begins a task, and waits for its end.
func (w *writer) carryOut(ctx context.Context, begin func(*vim25.Client) (*object.Task, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := w.server.CarryOut(ctx, begin)
	return err
}

// until repeats a step until it is done.
func until(ctx context.Context, step func() (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for waits := session.Pauses(50*time.Millisecond, 2*time.Second); ; {
		done, err := step()
		if done || err != nil {
			return err
		}
		if err := session.Pause(ctx, waits); err != nil {
			return fmt.Errorf("vCenter was not done after %s", patience)
		}
	}
}
