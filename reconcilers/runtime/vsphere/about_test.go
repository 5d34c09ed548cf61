package vsphere_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
)

func TestAboutAndHosts(t *testing.T) {
	v := start(t)
	w := worldOf(t, v)
	server := w.connect(w.config())
	about, err := server.About(t.Context())
	if err != nil || about.Version == "" || about.InstanceUUID == "" {
		t.Errorf("got %+v, error %v", about, err)
	}
	names := v.Hosts()
	v.SetHost(names[0], true, true)
	v.SetHost(names[1], false, false)
	found, err := disk.New(server).Inventory(t.Context(), nil)
	hosts := found.Hosts
	if err != nil || len(hosts) != len(names) {
		t.Fatalf("got %+v, error %v, and not the hosts %v", hosts, err, names)
	}
	slices.SortFunc(hosts, func(a, b v1alpha1.VSphereHost) int { return strings.Compare(a.Name, b.Name) })
	want := []v1alpha1.VSphereHost{}
	for i, name := range names {
		want = append(want, v1alpha1.VSphereHost{Name: name, Cluster: hosts[0].Cluster, Connected: i != 1, InMaintenance: i == 0})
	}
	if diff := cmp.Diff(want, hosts); diff != "" || hosts[0].Cluster == "" || hosts[0].Cluster == hosts[0].Name {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPath(t *testing.T) {
	v := start(t)
	w := worldOf(t, v)
	m := w.machine("web-1")
	if _, err := w.runtime.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got, err := w.runtime.Path(t.Context(), m); err != nil || got != w.path(m) {
		t.Errorf("got %s, error %v, and not %s", got, err, w.path(m))
	}
	nowhere := m
	nowhere.UID = "another"
	nowhere.Spec = m.Spec.DeepCopy()
	nowhere.Spec.Runtime.VSphere.InventoryPath = "/DC0/vm/nowhere"
	if _, err := w.runtime.Path(t.Context(), nowhere); !runtime.IsNotFound(err) {
		t.Errorf("got error %v", err)
	}
}
