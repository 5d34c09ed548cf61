package vcsim

import (
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// machine is a machine of the simulator that behaves like one of a vCenter. What it has beside the simulator's is guarded
// by the lock that the simulator holds on it during a call.
type machine struct {
	*simulator.VirtualMachine
	center *VCenter

	busy  *task                    // What is in flight, or nil.
	lease *lease                   // The import that it is made by, or nil once that has ended.
	read  int                      // How many clones of it are being made.
	holds map[string]chan struct{} // What keeps tasks in flight until it is closed, by verb.
	boots int                      // How often it was powered on.
	step  time.Duration            // How long a task takes, and the guest to shut down.

	hotAdd         bool   // Processors and memory can be added while it is on.
	guest          *Guest // What the guest says of itself while the machine is on, or nil if that is nothing.
	noTools        bool
	ignores        bool // The guest ignores requests to shut down.
	asked          int  // In which of its power-ons the guest was last asked, by number.
	ignoresCancels bool
}

// maxCPUs is how many processors a machine can have.
const maxCPUs = 128

// set sets the power state, and the time of the power-on unless that stays as it is.
func (m *machine) set(ctx *simulator.Context, state types.VirtualMachinePowerState, boot ...types.AnyType) {
	changes := []types.PropertyChange{
		{Name: "runtime.powerState", Val: state},
		{Name: "summary.runtime.powerState", Val: state},
	}
	if len(boot) == 1 {
		changes = append(changes,
			types.PropertyChange{Name: "runtime.bootTime", Val: boot[0]},
			types.PropertyChange{Name: "summary.runtime.bootTime", Val: boot[0]})
	}
	ctx.Update(m, changes)
	m.relock()
	m.showGuest(ctx)
}

func (m *machine) powerOn(ctx *simulator.Context) types.BaseMethodFault {
	switch m.Runtime.PowerState {
	case types.VirtualMachinePowerStatePoweredOn:
		return m.wrongPower(types.VirtualMachinePowerStatePoweredOn)
	case types.VirtualMachinePowerStateSuspended:
		m.set(ctx, types.VirtualMachinePowerStatePoweredOn)
	default:
		for _, file := range m.files() {
			if m.center.locked(file, m) {
				return new(types.FileLocked)
			}
		}
		m.boots++
		m.set(ctx, types.VirtualMachinePowerStatePoweredOn, time.Now())
	}
	return nil
}

func (m *machine) powerOff(ctx *simulator.Context) types.BaseMethodFault {
	if m.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff {
		return m.wrongPower(types.VirtualMachinePowerStatePoweredOff)
	}
	m.set(ctx, types.VirtualMachinePowerStatePoweredOff, nil)
	return nil
}

func (m *machine) suspend(ctx *simulator.Context) types.BaseMethodFault {
	if m.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		return m.wrongPower(types.VirtualMachinePowerStateSuspended)
	}
	m.set(ctx, types.VirtualMachinePowerStateSuspended)
	return nil
}

func (m *machine) relocate(ctx *simulator.Context, host types.ManagedObjectReference) types.BaseMethodFault {
	target, ok := ctx.Map.Get(host).(*simulator.HostSystem)
	if !ok {
		return &types.InvalidArgument{InvalidProperty: "spec.host"}
	}
	if target.Runtime.InMaintenanceMode || target.Runtime.ConnectionState != types.HostSystemConnectionStateConnected {
		return new(types.InvalidState)
	}
	ctx.Update(m, []types.PropertyChange{
		{Name: "runtime.host", Val: host},
		{Name: "summary.runtime.host", Val: host},
	})
	return nil
}

func (m *machine) wrongPower(requested types.VirtualMachinePowerState) types.BaseMethodFault {
	return &types.InvalidPowerState{RequestedState: requested, ExistingState: m.Runtime.PowerState}
}

// fault gives the answer of a call that is refused.
func fault(f types.BaseMethodFault) *soap.Fault { return simulator.Fault("", f) }

// PowerOnVMTask begins to power the machine on, or to resume it.
func (m *machine) PowerOnVMTask(ctx *simulator.Context, req *types.PowerOnVM_Task) soap.HasFault {
	body := new(methods.PowerOnVM_TaskBody)
	if m.Config.Template {
		body.Fault_ = fault(new(types.InvalidState))
		return body
	}
	ref, refused := m.begin(ctx, "powerOn", asked(ctx), func(ctx *simulator.Context) types.BaseMethodFault {
		if req.Host != nil && m.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff {
			_ = m.relocate(ctx, *req.Host) // on one that will not do it stays where it is
		}
		return m.powerOn(ctx)
	})
	if refused != nil {
		body.Fault_ = fault(refused)
		return body
	}
	body.Res = &types.PowerOnVM_TaskResponse{Returnval: ref}
	return body
}

// PowerOffVMTask begins to take the machine's power away.
func (m *machine) PowerOffVMTask(ctx *simulator.Context, _ *types.PowerOffVM_Task) soap.HasFault {
	body := new(methods.PowerOffVM_TaskBody)
	ref, refused := m.begin(ctx, "powerOff", asked(ctx), m.powerOff)
	if refused != nil {
		body.Fault_ = fault(refused)
		return body
	}
	body.Res = &types.PowerOffVM_TaskResponse{Returnval: ref}
	return body
}

// SuspendVMTask begins to suspend the machine.
func (m *machine) SuspendVMTask(ctx *simulator.Context, _ *types.SuspendVM_Task) soap.HasFault {
	body := new(methods.SuspendVM_TaskBody)
	ref, refused := m.begin(ctx, "suspend", asked(ctx), m.suspend)
	if refused != nil {
		body.Fault_ = fault(refused)
		return body
	}
	body.Res = &types.SuspendVM_TaskResponse{Returnval: ref}
	return body
}

// RelocateVMTask begins to move the machine to another host, which is all that it can do.
func (m *machine) RelocateVMTask(ctx *simulator.Context, req *types.RelocateVM_Task) soap.HasFault {
	body := new(methods.RelocateVM_TaskBody)
	if req.Spec.Host == nil {
		body.Fault_ = fault(&types.InvalidArgument{InvalidProperty: "spec.host"})
		return body
	}
	ref, refused := m.begin(ctx, "relocate", asked(ctx), func(ctx *simulator.Context) types.BaseMethodFault {
		return m.relocate(ctx, *req.Spec.Host)
	})
	if refused != nil {
		body.Fault_ = fault(refused)
		return body
	}
	body.Res = &types.RelocateVM_TaskResponse{Returnval: ref}
	return body
}

// ReconfigVMTask changes the configuration, under the lock of the version that the request names.
func (m *machine) ReconfigVMTask(ctx *simulator.Context, req *types.ReconfigVM_Task) soap.HasFault {
	body := new(methods.ReconfigVM_TaskBody)
	switch {
	case m.busy != nil:
		body.Fault_ = fault(&types.TaskInProgress{Task: m.busy.Self})
	case m.lease != nil:
		body.Fault_ = fault(new(types.InvalidState))
	case req.Spec.ChangeVersion != "" && req.Spec.ChangeVersion != m.Config.ChangeVersion:
		body.Fault_ = fault(new(types.ConcurrentAccess))
	case m.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn && !m.hotAdd && (req.Spec.NumCPUs != 0 || req.Spec.MemoryMB != 0):
		body.Fault_ = fault(m.wrongPower(types.VirtualMachinePowerStatePoweredOff))
	case int(req.Spec.NumCPUs) > maxCPUs:
		body.Fault_ = fault(&types.InvalidArgument{InvalidProperty: "configSpec.numCPUs"})
	case req.Spec.Name != "" && req.Spec.Name != m.Name:
		return m.rename(ctx, req)
	case len(req.Spec.DeviceChange) > 0 && !m.Config.Template:
		return m.reconfigureDevices(ctx, req)
	default:
		if m.Config.Template {
			req.Spec.ChangeVersion = "" // which has been checked; the simulator takes it for a change
		}
		// The simulator keeps the machine locked until that is done.
		return m.VirtualMachine.ReconfigVMTask(ctx, req)
	}
	return body
}

// rename begins to change the name, and what else the request says. Nothing else in the folder has the new name from its beginning on.
func (m *machine) rename(ctx *simulator.Context, req *types.ReconfigVM_Task) soap.HasFault {
	old := m.center.pathOf(ctx, m)
	place := old[:strings.LastIndex(old, "/")+1] + req.Spec.Name
	free := m.center.reserve(place)
	ref, refused := m.begin(ctx, "reconfigVm", asked(ctx), func(ctx *simulator.Context) types.BaseMethodFault {
		if !free {
			return &types.DuplicateName{Name: req.Spec.Name, Object: *m.Parent}
		}
		defer m.center.release(place)
		req.Spec.ChangeVersion = "" // which has been checked; the simulator takes it for a change of a template
		body := m.VirtualMachine.ReconfigVMTask(ctx, req).(*methods.ReconfigVM_TaskBody)
		if refused := ended(ctx, body.Res.Returnval); refused != nil {
			return refused
		}
		m.center.moved(m, place)
		ctx.Update(m, []types.PropertyChange{{Name: "name", Val: req.Spec.Name}})
		return nil
	})
	if refused != nil {
		if free {
			m.center.release(place)
		}
		return &methods.ReconfigVM_TaskBody{Fault_: fault(refused)}
	}
	return &methods.ReconfigVM_TaskBody{Res: &types.ReconfigVM_TaskResponse{Returnval: ref}}
}

// MarkAsTemplate makes the machine a template.
func (m *machine) MarkAsTemplate(_ *simulator.Context, req *types.MarkAsTemplate) soap.HasFault {
	switch {
	case m.busy != nil:
		return &methods.MarkAsTemplateBody{Fault_: fault(&types.TaskInProgress{Task: m.busy.Self})}
	case m.lease != nil:
		return &methods.MarkAsTemplateBody{Fault_: fault(new(types.InvalidState))}
	}
	return m.VirtualMachine.MarkAsTemplate(req)
}

// ShutdownGuest asks the guest to shut down.
func (m *machine) ShutdownGuest(_ *simulator.Context, _ *types.ShutdownGuest) soap.HasFault {
	body := new(methods.ShutdownGuestBody)
	switch {
	case m.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn:
		body.Fault_ = fault(m.wrongPower(types.VirtualMachinePowerStatePoweredOn))
	case m.noTools:
		body.Fault_ = fault(new(types.ToolsUnavailable))
	case m.busy != nil:
		body.Fault_ = fault(&types.TaskInProgress{Task: m.busy.Self})
	default:
		m.asked = m.boots
		if !m.ignores {
			step := m.step
			m.center.background.Go(func() {
				if m.center.pause(step, nil) {
					ctx := m.center.context()
					ctx.WithLock(m, func() { m.heed(ctx) })
				}
			})
		}
		body.Res = new(types.ShutdownGuestResponse)
	}
	return body
}

// heed has the guest do what it was asked to, unless it was powered on since.
func (m *machine) heed(ctx *simulator.Context) {
	if m.asked == m.boots && m.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		m.powerOff(ctx)
	}
}
