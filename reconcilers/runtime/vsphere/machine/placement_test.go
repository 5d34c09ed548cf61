package machine

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/race"
	"sallyport.dev/sallyport/test/support/step"
)

// judging is a vCenter, and tenants that keep what they were asked about.
type judging struct {
	*Runtime
	vcenter *vcsim.VCenter
	faults  *vcsim.Faults
	machine runtime.Machine
	asked   []v1alpha1.VSphereClone
	may     []v1alpha1.InventoryPath
	refused map[v1alpha1.InventoryPath]bool
	answer  error
}

func newJudging(t *testing.T) *judging {
	t.Helper()
	center, err := vcsim.Start(vcsim.Options{Datastores: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(center.Close)
	j := &judging{vcenter: center, faults: &vcsim.Faults{}}
	server, err := session.NewServer(session.Config{
		Name: "lab", URL: center.URL(), CABundle: center.CABundle(), Wrap: j.faults.Wrap,
		Credentials: func(context.Context) (*url.Userinfo, error) { return center.User(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	center.AddPool("team")
	template, err := center.AddTemplate("template")
	if err != nil {
		t.Fatal(err)
	}
	j.machine = runtime.Machine{
		NamespacedName: kubetypes.NamespacedName{Namespace: "ns", Name: "web"}, UID: "0f9619ff-8b86-4011-b42d-00c04fc964ff",
		Spec: &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
			Clone: &v1alpha1.VSphereClone{
				Template: v1alpha1.VSphereCloneSource{InventoryPath: v1alpha1.InventoryPath(template)},
				Folder:   "/DC0/vm", ResourcePool: "/DC0/host/DC0_C0/Resources/team", Datastore: "/DC0/datastore/LocalDS_0",
				Networks: []v1alpha1.InventoryPath{"/DC0/network/VM Network", "/DC0/network/DC0_DVPG0"},
			},
		}}},
	}
	j.Runtime = New(server)
	j.placeCheck = func(_ context.Context, clone *v1alpha1.VSphereClone) ([]v1alpha1.InventoryPath, error) {
		j.asked = append(j.asked, *clone.DeepCopy())
		if j.refused[clone.Datastore] {
			return nil, runtime.NewPermission(nil, "not on %s", clone.Datastore)
		}
		return j.may, j.answer
	}
	return j
}

// What was renamed after it was found is judged where it is, and nothing that is where the spec has it is judged again.
func TestPlacesAreJudgedWhereTheyAre(t *testing.T) {
	race.Skip(t)
	for name, c := range map[string]struct {
		kind, from string
		moves      func(*v1alpha1.VSphereClone)
		fields     string
	}{
		"datastore": {"Datastore", "LocalDS_0", func(c *v1alpha1.VSphereClone) { c.Datastore = "/DC0/datastore/moved" }, "datastore"},
		"pool": {"ResourcePool", "team", func(c *v1alpha1.VSphereClone) {
			c.ResourcePool = "/DC0/host/DC0_C0/Resources/moved"
		}, "resourcePool"},
		"the cluster of the pool": {"ClusterComputeResource", "DC0_C0", func(c *v1alpha1.VSphereClone) {
			c.ResourcePool = "/DC0/host/moved/Resources/team"
		}, "resourcePool"},
		"network": {"DistributedVirtualPortgroup", "DC0_DVPG0", func(c *v1alpha1.VSphereClone) { c.Networks[1] = "/DC0/network/moved" }, "networks[1]"},
		"the folder of the folder": {"Folder", "vm", func(c *v1alpha1.VSphereClone) {
			c.Folder, c.Template.InventoryPath = "/DC0/moved", "/DC0/moved/template"
		}, "template.inventoryPath, folder"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJudging(t)
			clone := cloneOf(j.machine)
			p, err := j.placement(t.Context(), j.machine)
			if err != nil || len(j.asked) > 0 {
				t.Fatalf("nothing was renamed: asked about %v, error %v", j.asked, err)
			}
			j.vcenter.RenamePlace(c.kind, c.from, "moved")
			if _, _, err := j.checkedClone(t.Context(), clone, p); err != nil {
				t.Errorf("it may be there: got error %v", err)
			}
			want := clone.DeepCopy()
			c.moves(want)
			if diff := cmp.Diff([]v1alpha1.VSphereClone{*want}, j.asked); diff != "" {
				t.Errorf("asked about (-want +got):\n%s", diff)
			}
			j.answer = runtime.NewPermission(nil, "not at %s", "/DC0/moved")
			_, _, err = j.checkedClone(t.Context(), clone, p)
			said := "spec.runtime.vsphere.clone." + c.fields + ": vCenter lab has this at another path now, where the namespace may not create machines"
			if !runtime.IsPermission(err) || runtime.Message(err) != said {
				t.Errorf("it may not be there: got error %v", err)
			}
			j.answer = runtime.NewUnavailable(nil, "not now")
			if _, _, err := j.checkedClone(t.Context(), clone, p); !runtime.IsUnavailable(err) {
				t.Errorf("nobody knows: got error %v", err)
			}
		})
	}
}

// Two networks can have one path, and vCenter returns either.
func TestNetworksAtOnePath(t *testing.T) {
	for _, other := range []string{"DistributedVirtualPortgroup", "Network"} {
		j := newJudging(t)
		j.vcenter.RenamePlace("DistributedVirtualPortgroup", "DC0_DVPG0", "VM Network")
		clone := cloneOf(j.machine)
		clone.Networks = clone.Networks[:1]
		want := "spec.runtime.vsphere.clone.networks: vCenter lab has several networks at /DC0/network/VM Network, and the cluster or host has 2 of them: " +
			"rename the one that is meant, or move it to another folder"
		if _, err := j.placement(t.Context(), j.machine); !runtime.IsInvalidSpec(err) || runtime.Message(err) != want {
			t.Errorf("got error %v", err)
		}
		j.vcenter.DisconnectClusters(other)
		if p, err := j.placement(t.Context(), j.machine); err != nil || p.connected[0].Type == other {
			t.Errorf("only the cluster's: got error %v, %v", err, p)
		}
	}
}

// A part that moves between the look for it and the request to make the machine keeps the machine from being made.
func TestPlacesThatMoveAreNotUsed(t *testing.T) {
	j := newJudging(t)
	j.answer = runtime.NewPermission(nil, "not there")
	for range 5 {
		j.faults.Before(func() {}, "FindByInventoryPath")
	}
	j.faults.Before(func() { j.vcenter.RenamePlace("DistributedVirtualPortgroup", "DC0_DVPG0", "moved") }, "FindByInventoryPath")
	if _, err := j.Ensure(t.Context(), j.machine); !runtime.IsPermission(err) || !strings.Contains(err.Error(), "clone.networks[1]") {
		t.Errorf("got error %v", err)
	}
	if called := j.faults.Called(); slices.Contains(called, "CloneVM_Task") {
		t.Errorf("the machine was made: %v", called)
	}
}

// What is not shown to its root, or has a path that no tenant could name, is not judged, and not used.
func TestPlacesWhosePathIsNotShown(t *testing.T) {
	for name, rename := range map[string]string{"without a name": "", "too long": strings.Repeat("x", inventory.MaxPath)} {
		j := newJudging(t)
		p, err := j.placement(t.Context(), j.machine)
		if err != nil {
			t.Fatal(err)
		}
		j.vcenter.RenamePlace("Datastore", "LocalDS_0", rename)
		want := "spec.runtime.vsphere.clone.datastore: vCenter lab does not show the full path of /DC0/datastore/LocalDS_0, which is needed to check spec.tenants"
		if _, _, err := j.checkedClone(t.Context(), cloneOf(j.machine), p); !runtime.IsInvalidSpec(err) || runtime.Message(err) != want {
			t.Errorf("%s: got error %v", name, err)
		}
		if len(j.asked) > 0 {
			t.Errorf("%s: asked about %v", name, j.asked)
		}
	}
}

// A mark says whose a machine was. Whether the namespace may have it where it is, the tenants say before it is taken over.
func TestTakingOverIsJudged(t *testing.T) {
	j := newJudging(t)
	ensure := func(m runtime.Machine) (id string, err error) {
		step.T{T: t}.Eventually("the machine", func() bool {
			id, err = j.Ensure(t.Context(), m)
			return id != "" || err != nil
		})
		return id, err
	}
	if _, err := ensure(j.machine); err != nil {
		t.Fatal(err)
	}
	was := string(j.machine.UID)
	heir := j.machine
	heir.UID, heir.Earlier = "0f9619ff-8b86-4011-b42d-00c04fc96400", runtime.TakeOver
	j.answer, j.asked = runtime.NewPermission(nil, "not there"), nil
	if _, err := j.Ensure(t.Context(), heir); !runtime.IsPermission(err) {
		t.Errorf("got error %v, want Permission", err)
	}
	if len(j.asked) != 1 || j.asked[0].Folder != "/DC0/vm" {
		t.Errorf("the tenants were asked about %+v", j.asked)
	}
	for _, path := range j.vcenter.Machines() {
		if state := j.vcenter.State(path); state.InstanceUUID == string(heir.UID) || state.InstanceUUID == was && state.ExtraConfig[OwnerKey] != was {
			t.Errorf("the machine is %+v", state)
		}
	}
	j.answer = nil
	if id, err := ensure(heir); err != nil || id != string(heir.UID) {
		t.Errorf("got %s, error %v", id, err)
	}
}
