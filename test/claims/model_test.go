package claims

import (
	"testing"

	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// model is two VirtualMachines and two VirtualDisks that come and go, beside machines of KubeVirt that users make and copy, and a process
// that dies at any call, for another to take over.
type model struct {
	*rapid.T
	*world
	p *process
}

// pass has the process look at something, and die of it or not. In the middle of it, users change what they want.
func (m *model) pass() {
	if rapid.IntRange(0, 2).Draw(m.T, "dies") == 0 {
		m.p.Die(rapid.IntRange(1, 24).Draw(m.T, "at"), m.flip("after"))
	}
	if rapid.IntRange(0, 3).Draw(m.T, "meanwhile") == 0 {
		happens := rapid.SampledFrom([]func(){m.respec, m.deleteObject, m.lose, m.decide, m.strip, m.relabel}).Draw(m.T, "what")
		m.p.Before(rapid.IntRange(1, 24).Draw(m.T, "when"), happens)
	}
	if m.flip("disk") {
		m.p.lookAtDisk(m.draw(diskNames, "name"))
	} else {
		m.p.lookAtMachine(m.draw(machineNames, "name"))
	}
}

// versions is something that changes whenever a machine or a claim does.
func (m *model) versions() (all string) {
	for _, o := range m.machines() {
		all += o.Name + o.ResourceVersion + " "
	}
	for _, o := range m.vms() {
		all += o.Name + o.ResourceVersion + " "
	}
	for _, o := range m.claims() {
		all += o.Name + o.ResourceVersion + " "
	}
	return all
}

// settle has everything go on until nothing changes any more.
func (m *model) settle() {
	before := ""
	for range 40 {
		before = m.versions()
		if m.p.round(); m.versions() == before {
			return
		}
	}
	m.Fatalf("it never comes to rest: %s; %s", before, m.versions())
}

// end has everything settle, and looks whether what is not as wanted says why.
func (m *model) end() {
	for _, vm := range m.vms() {
		if vm.Status.RestoreInProgress != nil {
			m.endRestore(&vm)
		}
	}
	m.settle()
	m.check()
	for _, vm := range m.machines() {
		if why := m.differs(&vm); why != "" && !tells(&vm) {
			m.Fatalf("%s %s, and does not tell: %+v", vm.Name, why, vm.Status)
		}
	}
}

// differs returns how a machine differs from what is wanted, or "".
func (m *model) differs(vm *v1alpha1.VirtualMachine) string {
	of := m.vm(vm.Status.InstanceID)
	on := vm.Status.InstanceID != "" && m.instance(vm.Status.InstanceID) != nil
	switch {
	case !vm.DeletionTimestamp.IsZero():
		return "is not gone"
	case of == nil || of.Labels[kubevirt.LabelMachine] != string(vm.UID):
		return "has no machine"
	case vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOn && !on:
		return "is not on"
	case vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOff && on:
		return "is not off"
	}
	for _, d := range m.disks() {
		has := false
		for _, claim := range claimsBy(&of.Spec.Template.Spec) {
			has = has || claim == d.Status.DiskID
		}
		if vm.Spec.Names(d.Name) && !has {
			return "has no disk " + d.Name
		}
	}
	return ""
}

// tells reports whether a machine says what is wrong with it.
func tells(vm *v1alpha1.VirtualMachine) bool {
	for _, t := range []v1alpha1.ConditionType{v1alpha1.ConditionReady, v1alpha1.ConditionDisksAttached} {
		if c := t.In(vm.Status.Conditions); c != nil && c.Status != "True" && c.Message != "" {
			return true
		}
	}
	return false
}

func (m *model) check() {
	for _, broken := range m.broken {
		m.Fatalf("%s", broken)
	}
}

func TestClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, world: newWorld(t.Context())}
		m.p = m.process()
		for _, step := range []func(){m.disk, m.disk, m.foreign, m.foreign, m.machine, m.machine, m.settle} {
			step()
		}
		does := func(step func()) func(*rapid.T) {
			return func(*rapid.T) {
				step()
				for range rapid.IntRange(0, 3).Draw(m.T, "rounds") {
					m.p.round()
				}
				m.check()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"pass": does(m.pass), "pass again": does(m.pass), "round": does(m.p.round), "another round": does(m.p.round), "settles": does(m.settle),
			"KubeVirt": does(m.virtController), "machine": does(m.machine), "disk": does(m.disk), "respec": does(m.respec),
			"delete": does(m.deleteObject), "delete another": does(m.deleteObject), "lose": does(m.lose), "decide": does(m.decide),
			"foreign": does(m.foreign), "virtctl": does(m.virtctl), "restore": does(m.restore), "restore again": does(m.restore), "clone": does(m.clone),
			"strip": does(m.strip), "relabel": does(m.relabel),
		})
		m.end()
	})
}
