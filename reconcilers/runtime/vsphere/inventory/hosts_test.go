package inventory

import (
	"testing"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func reference(kind, value string) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: kind, Value: value}
}

// hostWith is a host that has room for 8 GiB, and what most machines need.
func hostWith(name string, change ...func(*mo.HostSystem)) mo.HostSystem {
	host := mo.HostSystem{}
	host.Name = name
	host.Datastore = []types.ManagedObjectReference{reference("Datastore", "fast"), reference("Datastore", "slow")}
	host.Network = []types.ManagedObjectReference{reference("Network", "team")}
	host.Runtime.ConnectionState = types.HostSystemConnectionStateConnected
	host.Summary.Hardware = &types.HostHardwareSummary{MemorySize: 16 << 30}
	host.Summary.QuickStats.OverallMemoryUsage = 8 << 10
	for _, c := range change {
		c(&host)
	}
	return host
}

// A machine goes where all is that it needs, and of such hosts to the one with the least memory in use.
func TestHostsThatFit(t *testing.T) {
	need := Needs{
		Datastores: []types.ManagedObjectReference{reference("Datastore", "fast")},
		Networks:   []types.ManagedObjectReference{reference("Network", "team")}, Memory: 8 << 30,
	}
	for want, host := range map[string]mo.HostSystem{
		"": hostWith("fits"),
		"is not connected or in maintenance mode": hostWith("maintenance", func(h *mo.HostSystem) { h.Runtime.InMaintenanceMode = true }),
		"does not have all datastores of the machine": hostWith("no datastore", func(h *mo.HostSystem) {
			h.Datastore = h.Datastore[1:]
		}),
		"does not have all networks of the machine": hostWith("no network", func(h *mo.HostSystem) { h.Network = nil }),
		"has no room for the machine's memory": hostWith("full", func(h *mo.HostSystem) {
			h.Summary.QuickStats.OverallMemoryUsage++
		}),
	} {
		if got := need.lacks(host); got != want {
			t.Errorf("host %q: %q and not %q", host.Name, got, want)
		}
		if fits := need.Best([]mo.HostSystem{host}); (fits != nil) != (want == "") {
			t.Errorf("host %q is chosen: %v", host.Name, fits != nil)
		}
	}
	emptier := func(h *mo.HostSystem) { h.Summary.QuickStats.OverallMemoryUsage = 1 << 10 }
	gone := func(h *mo.HostSystem) { h.Runtime.ConnectionState = types.HostSystemConnectionStateDisconnected }
	all := []mo.HostSystem{hostWith("c"), hostWith("b", emptier), hostWith("a", emptier, gone), hostWith("d", emptier)}
	if best := need.Best(all); best == nil || best.Name != "b" {
		t.Errorf("chosen is %+v", best)
	}
	if _, lacks := HostNamed(all, "a", need); lacks != "the host a is not connected or in maintenance mode" {
		t.Errorf("got %q", lacks)
	}
	if _, lacks := HostNamed(all, "z", need); lacks != "the machine's cluster has no host z" {
		t.Errorf("got %q", lacks)
	}
	need.Memory = 0 // whoever names a host leaves it to vCenter whether there is room
	if host, lacks := HostNamed([]mo.HostSystem{hostWith("full", func(h *mo.HostSystem) { h.Summary.QuickStats.OverallMemoryUsage = 16 << 10 })}, "full", need); host == nil {
		t.Errorf("got %q", lacks)
	}
}
