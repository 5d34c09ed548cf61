package vcsim

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Guest is what a machine's guest says of itself.
type Guest struct {
	// Hostname is the host name of the guest.
	Hostname string
	// Address is the one that vCenter calls the guest's.
	Address string
	// Adapters are all its addresses by adapter: those of the machine, and at -1 those that only the guest knows.
	Adapters map[int32][]string
	// ToolsNotRunning says that VMware Tools do not run, and ToolsNotInstalled that there are none.
	ToolsNotRunning, ToolsNotInstalled bool
}

// SetGuest has the machine's guest say that of itself from now on, whenever the machine is on.
func (v *VCenter) SetGuest(path string, guest Guest) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		m.guest = &guest
		m.showGuest(ctx)
	})
}

// Ask has vCenter ask people about the machine, with these answers to choose from, until Answer.
func (v *VCenter) Ask(path, question string, answers ...string) {
	asked := &types.VirtualMachineQuestionInfo{Id: "1", Text: "msg.question:" + question}
	asked.Message = []types.VirtualMachineMessage{{Id: "msg.question", Text: question}}
	for _, answer := range answers {
		asked.Choice.ChoiceInfo = append(asked.Choice.ChoiceInfo, &types.ElementDescription{
			Description: types.Description{Label: answer, Summary: answer}, Key: answer,
		})
	}
	v.setQuestion(path, asked)
}

// Answer answers what vCenter asks about the machine.
func (v *VCenter) Answer(path string) { v.setQuestion(path, nil) }

func (v *VCenter) setQuestion(path string, question types.AnyType) {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		ctx.Update(m, []types.PropertyChange{{Name: "runtime.question", Val: question}})
	})
}

// showGuest has vCenter show what the guest says of itself: that the tools do not run is all that it knows of one that is off.
func (m *machine) showGuest(ctx *simulator.Context) {
	if m.guest == nil {
		return
	}
	said := types.GuestInfo{
		ToolsRunningStatus:  string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning),
		ToolsVersionStatus2: string(types.VirtualMachineToolsVersionStatusGuestToolsCurrent),
	}
	if m.guest.ToolsNotInstalled {
		said.ToolsVersionStatus2 = string(types.VirtualMachineToolsVersionStatusGuestToolsNotInstalled)
	}
	if m.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn && !m.guest.ToolsNotRunning && !m.guest.ToolsNotInstalled {
		said.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
		said.HostName, said.IpAddress = m.guest.Hostname, m.guest.Address
		for device, addresses := range m.guest.Adapters {
			said.Net = append(said.Net, types.GuestNicInfo{DeviceConfigId: device, IpAddress: addresses})
		}
	}
	ctx.Update(m, []types.PropertyChange{
		{Name: "guest.hostName", Val: said.HostName},
		{Name: "guest.ipAddress", Val: said.IpAddress},
		{Name: "guest.net", Val: said.Net},
		{Name: "guest.toolsRunningStatus", Val: said.ToolsRunningStatus},
		{Name: "guest.toolsVersionStatus2", Val: said.ToolsVersionStatus2},
	})
}
