//go:build !race

package sweep

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// kind is a kind of operation: what its machine is found like, what happens to it before, and how the operation is asked
// for.
type kind struct {
	name    string
	found   v1alpha1.PowerState
	before  phase
	begin   phase
	clones  bool             // The machine is cloned, and not adopted.
	tagged  bool             // The machine wants a host with a tag.
	anyHost bool             // It may end on any other host.
	seldom  bool             // It asks much of the simulator, so that fewer of its points are taken.
	stuck   runtime.TaskKind // What does not end by itself.
}

// phase is what is done to a trial.
type phase func(ctx context.Context, t *trial) error

// kinds are the rows of the table.
var kinds = []kind{
	{name: "adoption", found: v1alpha1.PowerRunning, begin: declare},
	{name: "Start", found: v1alpha1.PowerStopped, before: adopt, begin: ask("Start")},
	{name: "Stop", found: v1alpha1.PowerRunning, before: adopt, begin: ask("Stop")},
	{name: "Stop force", found: v1alpha1.PowerRunning, before: adopt, begin: ask("Stop force")},
	{name: "Restart", found: v1alpha1.PowerRunning, before: adopt, begin: ask("Restart")},
	{name: "Restart force", found: v1alpha1.PowerRunning, before: adopt, begin: ask("Restart force")},
	{name: "Migrate", found: v1alpha1.PowerRunning, before: adopt, begin: ask("Migrate")},
	{name: "Evict", found: v1alpha1.PowerRunning, before: adopt, begin: ask("Evict"), anyHost: true},
	{name: "another host in the spec", found: v1alpha1.PowerRunning, before: adopt, begin: pin},
	{name: "Stop over a Start in flight", found: v1alpha1.PowerStopped, before: start, begin: ask("Stop"),
		stuck: runtime.TaskPowerOn},
	{name: "deletion", found: v1alpha1.PowerRunning, before: adopt, begin: remove},
	{name: "creation, and start by run policy, on a host with a tag", clones: true, tagged: true, begin: declare},
	{name: "run policy AlwaysOff", clones: true, before: makes, begin: turnOff},
	{name: "change while it is on", clones: true, before: makesWithHotAdd, begin: grow},
	{name: "restart for a change", clones: true, before: makes, begin: grow},
	{name: "deletion of a machine that was made", clones: true, before: makes, begin: remove},
	{name: "deletion of a machine that is being made", clones: true, before: adopt, begin: remove},
	{name: "creation with a disk", clones: true, begin: declareWithDisk, seldom: true},
	{name: "a larger disk while the machine is on", clones: true, before: makesWithDisk, begin: growDisk, seldom: true},
	{name: "a disk taken off while the machine is on", clones: true, before: makesWithDisk, begin: takeOff, seldom: true},
	{name: "deletion of a machine with a disk", clones: true, before: makesWithDisk, begin: remove, seldom: true},
	{name: "deletion of a disk that was taken off", clones: true, before: makesWithDisk, begin: takeOffAndDelete, seldom: true},
}

// declare makes the VirtualMachine.
func declare(ctx context.Context, t *trial) error { return t.declare(ctx) }

// adopt makes the VirtualMachine and has it adopt its machine.
func adopt(ctx context.Context, t *trial) error { return errors.Join(t.declare(ctx), t.advance(ctx)) }

// makes makes the VirtualMachine and waits until its machine is made and on.
func makes(ctx context.Context, t *trial) error {
	if err := t.declare(ctx); err != nil {
		return err
	}
	_, err := t.drive(ctx, t.setup, nil)
	return err
}

// makesWithHotAdd makes one that takes processors while it is on.
func makesWithHotAdd(ctx context.Context, t *trial) error {
	t.vcenter.AllowHotAdd(t.template)
	return makes(ctx, t)
}

// declareWithDisk makes a VirtualDisk and a VirtualMachine that has it.
func declareWithDisk(ctx context.Context, t *trial) error {
	return errors.Join(t.declareDisk(ctx), t.declare(ctx))
}

// makesWithDisk makes them, and waits until the machine is made, on, and has its disk.
func makesWithDisk(ctx context.Context, t *trial) error {
	if err := declareWithDisk(ctx, t); err != nil {
		return err
	}
	_, err := t.drive(ctx, t.setup, nil)
	return err
}

// growDisk wants the disk larger.
func growDisk(ctx context.Context, t *trial) error {
	return t.changeDisk(ctx, func(d *v1alpha1.VirtualDisk) { d.Spec.Size = resource.MustParse("128Mi") })
}

// takeOff takes the disk out of the spec of the machine.
func takeOff(ctx context.Context, t *trial) error {
	return t.change(ctx, func(spec *v1alpha1.VirtualMachineSpec) { spec.BlockDeviceRefs = nil })
}

// takeOffAndDelete deletes the disk as well, whose data goes once the machine does not have it any more.
func takeOffAndDelete(ctx context.Context, t *trial) error {
	return errors.Join(takeOff(ctx, t), t.removeDisk(ctx))
}

// grow gives the machine more processors, at the cost of a restart if it takes one.
func grow(ctx context.Context, t *trial) error {
	return t.change(ctx, func(spec *v1alpha1.VirtualMachineSpec) {
		spec.CPU, spec.RestartApprovalMode = new(int32(4)), v1alpha1.RestartAutomatic
	})
}

// turnOff has the run policy keep the machine off from now on.
func turnOff(ctx context.Context, t *trial) error {
	return t.change(ctx, func(spec *v1alpha1.VirtualMachineSpec) { spec.RunPolicy = v1alpha1.RunPolicyAlwaysOff })
}

// pin wants the machine on another host.
func pin(ctx context.Context, t *trial) error {
	host := t.vcenter.OtherHost(t.path)
	return t.change(ctx, func(spec *v1alpha1.VirtualMachineSpec) { spec.NodeName = host })
}

// start has a Start in flight that does not end by itself.
func start(ctx context.Context, t *trial) error {
	err := errors.Join(adopt(ctx, t), t.ask(ctx, "Start"), t.advance(ctx))
	if err == nil && !t.vcenter.State(t.path).Busy {
		return errors.New("the Start is not in flight")
	}
	return err
}

// ask asks for an operation, such as "Stop force".
func ask(what string) phase {
	return func(ctx context.Context, t *trial) error { return t.ask(ctx, what) }
}

// remove deletes the VirtualMachine.
func remove(ctx context.Context, t *trial) error { return t.remove(ctx) }
