package machine

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/race"
)

const gibibyte = 1 << 30

// newChoosing is a vCenter with three datastores, the second of which has most room, and a machine that leaves its datastore to its
// storage policy.
func newChoosing(t *testing.T) *judging {
	t.Helper()
	j := newJudging(t)
	j.may = []v1alpha1.InventoryPath{"/DC0/datastore"}
	for name, free := range map[string]int64{"LocalDS_0": 10, "LocalDS_1": 30, "LocalDS_2": 20} {
		j.vcenter.ChangeDatastore(name, func(s *types.DatastoreSummary) { s.Capacity, s.FreeSpace = 40*gibibyte, free*gibibyte })
	}
	clone := cloneOf(j.machine)
	clone.Datastore, clone.StoragePolicy = "", "vSAN Default Storage Policy"
	return j
}

// unmount takes the one with most room off hosts.
func (j *judging) unmount(hosts ...string) {
	for _, host := range hosts {
		j.vcenter.Unmount(host, "LocalDS_1")
	}
}

// The datastore with most free space is chosen of those that will do.
func TestDatastoreIsChosen(t *testing.T) {
	race.Skip(t)
	all := func(j *judging) []string { return j.vcenter.Hosts() }
	for name, c := range map[string]struct {
		world  func(*judging)
		chosen string
	}{
		"of all":                             {func(*judging) {}, "LocalDS_1"},
		"it does not satisfy the policy":     {func(j *judging) { j.vcenter.SetUnfit("LocalDS_1") }, "LocalDS_2"},
		"the tenants have others":            {func(j *judging) { j.may = []v1alpha1.InventoryPath{"/DC0/datastore/LocalDS_0", "/DC0/x"} }, "LocalDS_0"},
		"the tenants refuse it":              {func(j *judging) { j.refused = map[v1alpha1.InventoryPath]bool{"/DC0/datastore/LocalDS_1": true} }, "LocalDS_2"},
		"no host has it":                     {func(j *judging) { j.unmount(all(j)...) }, "LocalDS_2"},
		"one host has it":                    {func(j *judging) { j.unmount(all(j)[1:]...) }, "LocalDS_1"},
		"the host of the machine has others": {func(j *judging) { j.unmount(all(j)[0]); j.machine.Spec.NodeName = all(j)[0] }, "LocalDS_2"},
		"a host that has it is in maintenance": {func(j *judging) {
			j.unmount(all(j)[1:]...)
			j.vcenter.SetHost(all(j)[0], true, true)
		}, "LocalDS_2"},
		"it is in maintenance": {func(j *judging) {
			j.vcenter.ChangeDatastore("LocalDS_1", func(s *types.DatastoreSummary) {
				s.MaintenanceMode = string(types.DatastoreSummaryMaintenanceModeStateEnteringMaintenance)
			})
		}, "LocalDS_2"},
		"it is not accessible": {func(j *judging) {
			j.vcenter.ChangeDatastore("LocalDS_1", func(s *types.DatastoreSummary) { s.Accessible = false })
		}, "LocalDS_2"},
		"it is too small": {func(j *judging) {
			j.vcenter.ChangeDatastore("LocalDS_1", func(s *types.DatastoreSummary) { s.Capacity = 34 * gibibyte })
			cloneOf(j.machine).Disks = []v1alpha1.VSphereCloneDisk{{Size: resource.MustParse("35Gi")}}
		}, "LocalDS_2"},
		"two are as free": {func(j *judging) {
			j.vcenter.ChangeDatastore("LocalDS_0", func(s *types.DatastoreSummary) { s.FreeSpace = 30 * gibibyte })
		}, "LocalDS_0"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newChoosing(t)
			c.world(j)
			p, err := j.placement(t.Context(), j.machine)
			if err != nil {
				t.Fatal(err)
			}
			at := v1alpha1.InventoryPath("/DC0/datastore/" + c.chosen)
			if p.datastore.Name != c.chosen || j.asked[0].Datastore != "" || j.asked[len(j.asked)-1].Datastore != at {
				t.Errorf("it is on %s, after the tenants were asked about %v", p.datastore.Name, j.asked)
			}
			if spec, err := p.cloneSpec(j.machine); err != nil || *spec.Location.Datastore != p.datastore.Self || len(spec.Location.Profile) != 1 {
				t.Errorf("asked for %+v, error %v", spec, err)
			}
		})
	}
}

// Where no datastore will do, the field is named, and what they lack together.
func TestNoDatastoreCanBeChosen(t *testing.T) {
	race.Skip(t)
	const field = "spec.runtime.vsphere.clone.storagePolicy: "
	for name, c := range map[string]struct {
		world func(*judging)
		is    func(error) bool
		want  string
	}{
		"none is allowed": {func(j *judging) { j.may = nil }, runtime.IsInvalidSpec,
			field + "no host that the machine can run on has a datastore that the namespace may use"},
		"none has room": {func(j *judging) {
			cloneOf(j.machine).Disks = []v1alpha1.VSphereCloneDisk{{Size: resource.MustParse("41Gi")}}
		}, runtime.IsInvalidSpec,
			field + "no datastore that the namespace may use has room for the disks, is accessible and is not in maintenance mode"},
		"none satisfies the policy": {func(j *judging) { j.vcenter.SetUnfit("LocalDS_0", "LocalDS_1", "LocalDS_2") }, runtime.IsInvalidSpec,
			field + `no datastore that the namespace may use and that has room for the disks satisfies the storage policy "vSAN Default Storage Policy"`},
		"no such policy": {func(j *judging) { cloneOf(j.machine).StoragePolicy = "gold" }, runtime.IsInvalidSpec,
			field + `vCenter lab has no storage policy "gold", or does not show it`},
		"the host is not there": {func(j *judging) { j.machine.Spec.NodeName = "nobody" }, runtime.IsInvalidSpec,
			"spec.nodeName: the machine's cluster has no host nobody"},
		"the tenants refuse each": {func(j *judging) {
			j.refused = map[v1alpha1.InventoryPath]bool{"/DC0/datastore/LocalDS_0": true, "/DC0/datastore/LocalDS_1": true, "/DC0/datastore/LocalDS_2": true}
		}, runtime.IsPermission, "not on /DC0/datastore/LocalDS_0"},
		"the tenants refuse the rest": {func(j *judging) { j.answer = runtime.NewPermission(nil, "not at all") }, runtime.IsPermission, "not at all"},
		"nobody can judge":            {func(j *judging) { j.answer = runtime.NewUnavailable(nil, "not now") }, runtime.IsUnavailable, "not now"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newChoosing(t)
			c.world(j)
			_, err := j.Ensure(t.Context(), j.machine)
			if !c.is(err) || runtime.Message(err) != c.want {
				t.Errorf("got error %v", err)
			}
			if called := j.faults.Called(); slices.Contains(called, "CloneVM_Task") {
				t.Errorf("the machine was made: %v", called)
			}
		})
	}
}

// The tenants are asked about the real places of the rest, and no more often than there is reason to.
func TestChosenDatastoreIsJudgedWithTheRest(t *testing.T) {
	j := newChoosing(t)
	for range 4 {
		j.faults.Before(func() {}, "FindByInventoryPath")
	}
	j.faults.Before(func() { j.vcenter.RenamePlace("Folder", "vm", "moved") }, "FindByInventoryPath")
	if _, err := j.placement(t.Context(), j.machine); err != nil {
		t.Fatal(err)
	}
	real := cloneOf(j.machine).DeepCopy()
	real.Folder, real.Template.InventoryPath = "/DC0/moved", "/DC0/moved/template"
	chosen := real.DeepCopy()
	chosen.Datastore = "/DC0/datastore/LocalDS_1"
	if diff := cmp.Diff([]v1alpha1.VSphereClone{*real, *chosen}, j.asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
