package vsphere_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
)

// manage has an extension of vCenter manage a machine, as the agents of vSphere Cluster Services are.
func (w *world) manage(path, extension string) {
	w.Helper()
	w.Must(w.server.Call(w.Context(), func(c *vim25.Client) error {
		found, err := object.NewSearchIndex(c).FindByInventoryPath(w.Context(), path)
		if err != nil {
			return err
		}
		task, err := object.NewVirtualMachine(c, found.Reference()).Reconfigure(w.Context(),
			types.VirtualMachineConfigSpec{ManagedBy: &types.ManagedByInfo{ExtensionKey: extension, Type: "agent"}})
		if err != nil {
			return err
		}
		return task.Wait(w.Context())
	}))
}

// The machines of a folder and those below it, and why some of them are not to be adopted.
func TestMachinesOfAFolder(t *testing.T) {
	w := newWorld(t)
	w.AddFolder("/DC0/vm/team-a")
	w.AddFolder("/DC0/vm/team-a/db")
	w.AddFolder("/DC0/vm/team-a2")
	_, err := w.AddTemplate("ubuntu")
	w.Must(err)
	for name, folder := range map[string]string{"web": "/team-a", "taken": "/team-a", "vCLS": "/team-a", "main": "/team-a/db", "other": "/team-a2"} {
		w.machine(name)
		w.Move("/DC0/vm/"+name, "/DC0/vm"+folder)
	}
	w.Move("/DC0/vm/ubuntu", "/DC0/vm/team-a")
	w.SetExtraConfig("/DC0/vm/team-a/taken", map[string]string{machine.OwnerKey: "uid-1", machine.NameKey: "team-b/db"})
	w.manage("/DC0/vm/team-a/vCLS", "com.vmware.vim.eam")
	got, err := w.runtime.Machines(t.Context(), "/DC0/vm/team-a", nil)
	w.Must(err)
	want := []machine.Listed{
		{Path: "/DC0/vm/team-a/db/main"},
		{Path: "/DC0/vm/team-a/taken", Owner: "uid-1", OwnerName: "team-b/db"},
		{Path: "/DC0/vm/team-a/ubuntu", Obstacle: "it is a template"},
		{Path: "/DC0/vm/team-a/vCLS", Obstacle: "vCenter's extension com.vmware.vim.eam manages it"},
		{Path: "/DC0/vm/team-a/web"},
	}
	for i := range want {
		want[i].InstanceUUID = w.State(want[i].Path).InstanceUUID
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listed are (-want +got):\n%s", diff)
	}
	if got, err := w.runtime.Machines(t.Context(), "/DC0/vm/team", nil); !runtime.IsNotFound(err) {
		t.Errorf("of a folder that does not exist: %v, %v", got, err)
	}
}

// A machine must have all tags. A misspelled one is an error, and not a folder without machines.
func TestMachinesWithTags(t *testing.T) {
	w := newWorld(t)
	for name, tags := range map[string][]string{"web": {"stage=test", "tier=front"}, "db": {"stage=test"}, "old": nil} {
		w.machine(name)
		for _, tag := range tags {
			category, value, _ := strings.Cut(tag, "=")
			w.Must(w.TagMachine(t.Context(), "/DC0/vm/"+name, category, value))
		}
	}
	for _, c := range []struct {
		tags labels
		want string
	}{
		{labels{"stage": "test"}, "/DC0/vm/db /DC0/vm/web"},
		{labels{"stage": "test", "tier": "front"}, "/DC0/vm/web"},
		{labels{"stage": "front"}, "error"},
		{labels{"Stage": "test"}, "error"},
	} {
		listed, err := w.runtime.Machines(t.Context(), "/DC0/vm", c.tags)
		var paths []string
		for _, m := range listed {
			paths = append(paths, m.Path)
		}
		got := strings.Join(paths, " ")
		if err != nil {
			t.Log(err)
			if got = "error"; !runtime.IsNotFound(err) {
				t.Errorf("%v: %v", c.tags, err)
			}
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.tags, got, c.want)
		}
	}
}
