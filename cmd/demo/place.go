package main

import (
	"fmt"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// place is where the machines of the chapters about power run, and what the demo does there so that operations collide.
type place interface {
	// name is its name in the output.
	name() string
	// manifest returns the VirtualMachine that adopts a machine.
	manifest(machine, runPolicy string) string
	// state returns the state of a machine, without waiting.
	state(machine string) state
	// hold keeps tasks of a kind from ending until release is called.
	hold(machine string, kind runtime.TaskKind) (release func())
	// ignoreShutdown has the guest ignore requests to shut down.
	ignoreShutdown(machine string)
	// shutDown has the guest shut itself down.
	shutDown(machine string)
	// home is the host of all machines at first, and other a second one.
	home() string
	other() string
}

// state is the state of a machine in its place.
type state struct {
	word     string // what the place calls it
	power    v1alpha1.PowerState
	host     string // "" if the place has none for a machine that is off
	busy     bool
	powerOns int
}

// placeSays prints and checks the state of a machine in its place, without waiting.
func (s *show) placeSays(machine string, power v1alpha1.PowerState, powerOns int) {
	is := s.place.state(machine)
	text := fmt.Sprintf("%s says: %s is %s", s.place.name(), machine, is.word)
	if is.host != "" {
		text += " on " + is.host
	}
	text += fmt.Sprintf("; power-ons so far: %d", is.powerOns)
	if is.busy {
		text += "; a task is in progress"
	}
	s.note("%s", text)
	if is.power != power || is.host != "" && is.host != s.place.home() || is.powerOns != powerOns {
		s.fail("%s; expected %s on %s and %d power-ons", text, power, s.place.home(), powerOns)
	}
}

// vSphere is the simulated vCenter as a place.
type vSphere struct{ *vcsim.VCenter }

// inventory is the folder of the machines.
const inventory = "/DC0/vm/"

var words = map[v1alpha1.PowerState]string{
	v1alpha1.PowerRunning: "poweredOn", v1alpha1.PowerStopped: "poweredOff", v1alpha1.PowerPaused: "suspended",
}

func (vSphere) name() string { return "vCenter" }

func (vSphere) manifest(machine, runPolicy string) string {
	return manifest(machine, runPolicy, "{vsphere: {serverRef: {name: vc-1}, inventoryPath: "+inventory+machine+"}}")
}

// manifest returns a VirtualMachine.
func manifest(name, runPolicy, runtime string) string {
	return fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: %s}
spec: {runPolicy: %s, runtime: %s}
`, name, runPolicy, runtime)
}

func (v vSphere) state(machine string) state {
	is := v.State(inventory + machine)
	return state{word: words[is.Power], power: is.Power, host: is.Host, busy: is.Busy, powerOns: is.PowerOns}
}

func (v vSphere) hold(machine string, kind runtime.TaskKind) (release func()) {
	return v.Hold(inventory+machine, kind)
}

func (v vSphere) ignoreShutdown(machine string) { v.IgnoreShutdown(inventory + machine) }
func (v vSphere) shutDown(machine string)       { v.SetPower(inventory+machine, v1alpha1.PowerStopped) }
func (v vSphere) home() string                  { return v.Hosts()[0] }
func (v vSphere) other() string                 { return v.OtherHost(inventory + web1) }
