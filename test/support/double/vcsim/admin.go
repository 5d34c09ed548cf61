package vcsim

import (
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// State is what a machine is truly like.
type State struct {
	// InstanceUUID is its instance UUID.
	InstanceUUID string
	// BIOSUUID is the UUID that its guest sees, which is not unique.
	BIOSUUID string
	// Power is whether it is on, off or paused.
	Power v1alpha1.PowerState
	// PowerOns is how often it was powered on.
	PowerOns int
	// Host is the name of the host that it is on, and Pool the inventory path of the resource pool that it is in.
	Host, Pool string
	// ExtraConfig is what text there is in its extraConfig, by key.
	ExtraConfig map[string]string
	// Template says whether it is a template.
	Template bool
	// Firmware is what it boots with, and SecureBoot whether its guest has to be signed for that.
	Firmware   string
	SecureBoot bool
	// Annotation is what people are told of it.
	Annotation string
	// Busy says whether a task is in flight.
	Busy bool
}

// State gives what the machine is like, without the runtime under test and without the network, and nothing if there is none.
func (v *VCenter) State(path string) (state State) {
	v.ifAt(path, func(ctx *simulator.Context, m *machine) {
		state = State{
			InstanceUUID: m.Config.InstanceUuid, BIOSUUID: m.Config.Uuid,
			PowerOns:    m.boots,
			Host:        ctx.Map.Get(*m.Runtime.Host).(*simulator.HostSystem).Name,
			ExtraConfig: extraConfig(m),
			Template:    m.Config.Template, Firmware: m.Config.Firmware, Annotation: m.Config.Annotation,
			Busy: m.busy != nil,
		}
		if m.ResourcePool != nil {
			state.Pool = v.pathOf(ctx, ctx.Map.Get(*m.ResourcePool).(mo.Entity))
		}
		if options := m.Config.BootOptions; options != nil && options.EfiSecureBootEnabled != nil {
			state.SecureBoot = *options.EfiSecureBootEnabled
		}
		switch m.Runtime.PowerState {
		case types.VirtualMachinePowerStatePoweredOn:
			state.Power = v1alpha1.PowerRunning
		case types.VirtualMachinePowerStatePoweredOff:
			state.Power = v1alpha1.PowerStopped
		default:
			state.Power = v1alpha1.PowerPaused
		}
	})
	return state
}

// OtherHost gives the name of a host that the machine is not on.
func (v *VCenter) OtherHost(path string) string {
	for _, name := range v.Hosts() {
		if name != v.State(path).Host {
			return name
		}
	}
	panic("vcsim: there is only one host")
}

// SetPower does at once what an administrator may do: it powers the machine on, takes its power away or suspends it. It
// has no effect on a machine that cannot be brought there.
func (v *VCenter) SetPower(path string, power v1alpha1.PowerState) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		switch power {
		case v1alpha1.PowerRunning:
			m.powerOn(ctx)
		case v1alpha1.PowerStopped:
			m.powerOff(ctx)
		case v1alpha1.PowerPaused:
			m.suspend(ctx)
		}
	})
}

// SetExtraConfig writes the machine's extraConfig at once; an empty value removes a key.
func (v *VCenter) SetExtraConfig(path string, values map[string]string) {
	spec := types.VirtualMachineConfigSpec{}
	for key, value := range values {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: value})
	}
	v.at(path, func(ctx *simulator.Context, m *machine) {
		m.VirtualMachine.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: m.Self, Spec: spec})
	})
}

// SetInstanceUUID gives the machine another instance UUID at once.
func (v *VCenter) SetInstanceUUID(path, uuid string) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		m.VirtualMachine.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: m.Self, Spec: types.VirtualMachineConfigSpec{InstanceUuid: uuid}})
	})
}

// SetTemplate makes the machine a template, or one no more.
func (v *VCenter) SetTemplate(path string, template bool) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		ctx.Update(m, []types.PropertyChange{{Name: "config.template", Val: template}})
	})
}

// SetConnection changes how vCenter sees the machine, such as disconnected when its host is.
func (v *VCenter) SetConnection(path string, state types.VirtualMachineConnectionState) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		ctx.Update(m, []types.PropertyChange{{Name: "runtime.connectionState", Val: state}})
	})
}

// ForgetBootTime forgets when the machine was powered on, as some versions of vCenter do when a machine is moved.
func (v *VCenter) ForgetBootTime(path string) {
	v.at(path, func(ctx *simulator.Context, m *machine) { m.set(ctx, m.Runtime.PowerState, nil) })
}

// SetStep changes how long the machine's tasks take, and its guest to shut down, from the next on.
func (v *VCenter) SetStep(path string, step time.Duration) {
	v.at(path, func(_ *simulator.Context, m *machine) { m.step = step })
}

// verbs gives what vCenter calls the kinds of tasks that can be held.
var verbs = map[runtime.TaskKind]string{
	runtime.TaskCreate:   "clone",
	runtime.TaskDelete:   "destroy",
	runtime.TaskPowerOn:  "powerOn",
	runtime.TaskPowerOff: "powerOff",
	runtime.TaskRelocate: "relocate",

	runtime.TaskReconfigure: "reconfigVm", // if it changes devices
}

// Hold keeps the machine's tasks of that kind in flight, from the next that begins, until release is called. Clones are tasks of their
// template.
func (v *VCenter) Hold(path string, kind runtime.TaskKind) (release func()) {
	held := make(chan struct{})
	all := []string{verbs[kind]}
	if kind == runtime.TaskReconfigure {
		all = append(all, "attachDisk", "detachDisk")
	}
	v.at(path, func(_ *simulator.Context, m *machine) {
		for _, verb := range all {
			m.holds[verb] = held
		}
	})
	return func() {
		v.at(path, func(_ *simulator.Context, m *machine) {
			if m.holds[verbs[kind]] != held {
				return
			}
			for _, verb := range all {
				delete(m.holds, verb)
			}
			close(held)
		})
	}
}

// Begin begins a task of somebody else's, for the reason that vCenter gives: DRS, a schedule, another user. A power-on, a
// power-off or a relocation to another host takes effect at its end; others have none.
func (v *VCenter) Begin(path string, kind runtime.TaskKind, reason types.BaseTaskReason) {
	target := v.host(v.OtherHost(path)).Self
	v.at(path, func(ctx *simulator.Context, m *machine) {
		effect := map[runtime.TaskKind]func(*simulator.Context) types.BaseMethodFault{
			runtime.TaskPowerOn:  m.powerOn,
			runtime.TaskPowerOff: m.powerOff,
			runtime.TaskRelocate: func(ctx *simulator.Context) types.BaseMethodFault { return m.relocate(ctx, target) },
		}[kind]
		if effect == nil {
			effect = func(*simulator.Context) types.BaseMethodFault { return nil }
		}
		if _, refused := m.begin(ctx, verbs[kind], reason, effect); refused != nil {
			panic("vcsim: another task is in flight for " + path)
		}
	})
}

// IgnoreCancels has the machine's tasks, from the next on, run to their end though they are cancelled.
func (v *VCenter) IgnoreCancels(path string) {
	v.at(path, func(_ *simulator.Context, m *machine) { m.ignoresCancels = true })
}

// IgnoreShutdown has the machine's guest ignore requests to shut down from now on.
func (v *VCenter) IgnoreShutdown(path string) {
	v.at(path, func(_ *simulator.Context, m *machine) { m.ignores = true })
}

// HeedShutdown has a guest that ignored a request do what it was asked to now, unless it was powered on since.
func (v *VCenter) HeedShutdown(path string) {
	v.at(path, func(ctx *simulator.Context, m *machine) { m.heed(ctx) })
}

// RemoveTools leaves the machine's guest without VMware Tools.
func (v *VCenter) RemoveTools(path string) {
	v.at(path, func(_ *simulator.Context, m *machine) { m.noTools = true })
}
