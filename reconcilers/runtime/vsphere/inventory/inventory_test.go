package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// A host that is in no cluster, or in one that may not be read, is one of its own.
func TestClustersOfHosts(t *testing.T) {
	cluster := mo.ComputeResource{}
	cluster.Self, cluster.Name = types.ManagedObjectReference{Type: "ClusterComputeResource", Value: "c-1"}, "blue"
	in := func(name string, parent *types.ManagedObjectReference) (h mo.HostSystem) {
		h.Name, h.Parent = name, parent
		return h
	}
	unseen := types.ManagedObjectReference{Type: "ClusterComputeResource", Value: "c-2"}
	seen := Tree{
		Named:   map[types.ManagedObjectReference]mo.ManagedEntity{cluster.Self: cluster.ManagedEntity},
		objects: []any{in("esx-1", &cluster.Self), cluster, in("esx-2", nil), in("esx-3", &unseen)},
	}
	got := map[string]string{}
	for _, h := range seen.Hosts() {
		got[h.Name] = h.Cluster
	}
	if diff := cmp.Diff(map[string]string{"esx-1": "blue", "esx-2": "esx-2", "esx-3": "esx-3"}, got); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}
