package vsphere_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/race"
)

const gibibyte = 1 << 30

// A machine is as its spec says: its size, its networks, its disks, its host.
func TestCloneIsAsSpecified(t *testing.T) {
	w := newWorld(t)
	m := w.cloned("web")
	m.Spec.CPU, m.Spec.Memory = new(int32(4)), new(resource.MustParse("4095Mi"))
	m.Spec.NodeName = w.Hosts()[1]
	clone := cloneOf(m)
	clone.Networks = []v1alpha1.InventoryPath{"/DC0/network/DC0_DVPG0", "/DC0/network/VM Network"}
	clone.Disks = []v1alpha1.VSphereCloneDisk{{Size: resource.MustParse("3Gi")}}
	m = w.ensure(m)
	want := vcsim.Hardware{CPUs: 4, MemoryMB: 4096, Disks: []int64{3 * gibibyte}, Networks: []string{"DC0_DVPG0", "VM Network"}}
	got := w.Hardware(w.path(m))
	got.Files = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.InstanceID != string(m.UID) {
		t.Errorf("the instance UUID is %s, and not %s", m.InstanceID, m.UID)
	}
	state := w.State(w.path(m))
	if state.Host != w.Hosts()[1] || state.Power != v1alpha1.PowerStopped || state.ExtraConfig[machine.NameKey] != "ns/web" {
		t.Errorf("got %+v", state)
	}
	if seen := w.observe(m); !seen.Exists || seen.Adopted || seen.NodeName != w.Hosts()[1] {
		t.Errorf("got %+v", seen)
	}
}

// What could not be looked at is not taken for something that is wrong with the spec.
func TestCloneWhenARequestFails(t *testing.T) {
	race.Skip(t)
	w := newWorld(t)
	w.ensure(w.cloned("shown"))
	w.faults.Called()
	w.ensure(w.cloned("counted"))
	for i := range w.faults.Called() {
		for range i {
			w.faults.Before(func() {})
		}
		w.faults.Fail(context.DeadlineExceeded)
		if _, err := w.runtime.Ensure(t.Context(), w.cloned(fmt.Sprintf("web-%d", i))); err != nil && !runtime.IsUnavailable(err) {
			t.Errorf("request %d: got error %v, want Unavailable", i+1, err)
		}
		w.faults.Clear()
	}
}

// A machine is in the resource pool that its spec names, or in the own one of the cluster that it names, on a host of that.
func TestCloneIsInItsPool(t *testing.T) {
	w := newWorld(t)
	const inner = "/DC0/host/DC0_C0/Resources/inner"
	w.AddPool("inner")
	for name, tc := range map[string]struct{ named, pool string }{
		"pool": {inner, inner}, "cluster": {"/DC0/host/DC0_C0", "/DC0/host/DC0_C0/Resources"},
	} {
		t.Run(name, func(t *testing.T) {
			m := w.cloned(name)
			m.Spec.NodeName, cloneOf(m).ResourcePool = w.Hosts()[1], v1alpha1.InventoryPath(tc.named)
			if state := w.State(w.path(w.ensure(m))); state.Pool != tc.pool || state.Host != w.Hosts()[1] {
				t.Errorf("it is in %s on %s, want %s on %s", state.Pool, state.Host, tc.pool, w.Hosts()[1])
			}
		})
	}
}

// What is not said is as in the template, whose adapters beyond the networks are left out.
func TestCloneIsAsItsTemplate(t *testing.T) {
	w := newWorld(t)
	m := w.cloned("web")
	template := w.Hardware(string(cloneOf(m).Template.InventoryPath))
	got := w.Hardware(w.path(w.ensure(m)))
	if diff := cmp.Diff(template.Files, got.Files); diff == "" {
		t.Error("the disks are the template's own")
	}
	got.Files, template.Files = nil, nil
	if diff := cmp.Diff(template, got); diff != "" {
		t.Errorf("(-template +machine):\n%s", diff)
	}
}

// A template can have been a machine of ours, and have had disks. What it remembers of that is not the clone's, which has copies of them.
func TestCloneForgetsTheTemplatesPast(t *testing.T) {
	w := newWorld(t)
	m := w.cloned("web")
	template := string(cloneOf(m).Template.InventoryPath)
	w.SetTemplate(template, false)
	w.SetExtraConfig(template, map[string]string{
		machine.OwnerKey: "another", machine.PowerOnsKey: "7 2026-01-01T00:00:00Z", machine.MoveKey: "2026-01-01T00:00:00Z 7 somewhere",
		"guestinfo.userdata": "theirs", "guestinfo.userdata.encoding": "base64",
	})
	w.SetTemplate(template, true)
	config := w.State(w.path(w.ensure(m))).ExtraConfig
	if config[machine.OwnerKey] != string(m.UID) || config[machine.PowerOnsKey] != "" || config[machine.MoveKey] != "" ||
		config["guestinfo.userdata"] != "" || config["guestinfo.userdata.encoding"] != "" {
		t.Errorf("got %v", config)
	}
}

func TestInventoryNames(t *testing.T) {
	w := newWorld(t)
	m := w.cloned("web")
	m.Namespace, m.Name = strings.Repeat("n", 63), strings.Repeat("w", 253)
	m = w.ensure(m)
	name := strings.TrimPrefix(w.path(m), "/DC0/vm/")
	if uid := string(m.UID); len(name) != 80 || !strings.HasSuffix(name, "-"+uid[len(uid)-12:]) || !strings.HasPrefix(name, m.Namespace+"-w") {
		t.Errorf("it is called %s", name)
	}
}

// unpacked gives what a guest finds under a key.
func unpacked(t *testing.T, config map[string]string, key string) string {
	t.Helper()
	if config[key] == "" {
		return ""
	}
	if encoding := config[key+".encoding"]; encoding != "gzip+base64" {
		t.Errorf("%s is encoded as %q", key, encoding)
	}
	packed, err := base64.StdEncoding.DecodeString(config[key])
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCloudInit(t *testing.T) {
	race.Skip(t)
	w := newWorld(t)
	for name, c := range map[string]struct {
		hostname       string
		given          runtime.CloudInit
		user, instance string
		called         string
		more           any
	}{
		"nothing":         {called: "nothing"},
		"a host name":     {hostname: "www.example.org", called: "www.example.org"},
		"user data":       {given: runtime.CloudInit{UserData: "#cloud-config\n"}, user: "#cloud-config\n", called: "user-data"},
		"metadata":        {given: runtime.CloudInit{MetaData: "zone: a"}, called: "metadata", more: "a"},
		"metadata's name": {hostname: "www", given: runtime.CloudInit{MetaData: `{"local-hostname": "mine", "instance-id": "7"}`}, called: "mine", instance: "7"},
	} {
		m := w.cloned(strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "'", ""))
		if name == "metadata's name" {
			c.instance = "7"
		} else {
			c.instance = string(m.UID)
		}
		cloneOf(m).Hostname, m.CloudInit = c.hostname, c.given
		config := w.State(w.path(w.ensure(m))).ExtraConfig
		if got := unpacked(t, config, "guestinfo.userdata"); got != c.user {
			t.Errorf("%s: the user data is %q", name, got)
		}
		var meta map[string]any
		if err := json.Unmarshal([]byte(unpacked(t, config, "guestinfo.metadata")), &meta); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if meta["local-hostname"] != c.called || meta["instance-id"] != c.instance || meta["zone"] != c.more {
			t.Errorf("%s: the metadata is %v", name, meta)
		}
	}
}

// What cannot be carried out names the field, and nothing is made.
func TestCloneRefused(t *testing.T) {
	race.Skip(t)
	w := newWorld(t)
	for name, c := range map[string]struct {
		change func(*runtime.Machine)
		want   string
	}{
		"no template": {func(m *runtime.Machine) { cloneOf(*m).Template.InventoryPath = "/DC0/vm/nothing" },
			"template.inventoryPath: vCenter lab has no template at /DC0/vm/nothing, or does not show it"},
		"a folder for a template": {func(m *runtime.Machine) { cloneOf(*m).Template.InventoryPath = "/DC0/vm" },
			"template.inventoryPath: vCenter lab has no template at /DC0/vm, or does not show it"},
		"a machine for a template": {func(m *runtime.Machine) { w.SetTemplate(string(cloneOf(*m).Template.InventoryPath), false) },
			"template.inventoryPath: the machine at /DC0/vm/template-of-t is not a template"},
		"a template with snapshots": {func(m *runtime.Machine) { w.SetSnapshot(string(cloneOf(*m).Template.InventoryPath), true) },
			"template.inventoryPath: the template at /DC0/vm/template-of-t has snapshots: remove them"},
		"no folder": {func(m *runtime.Machine) { cloneOf(*m).Folder = "/DC0/vm/nothing" },
			"folder: vCenter lab has no folder at /DC0/vm/nothing, or does not show it"},
		"a folder of hosts": {func(m *runtime.Machine) { cloneOf(*m).Folder = "/DC0/host" },
			"folder: the folder /DC0/host is not one for machines"},
		"no pool": {func(m *runtime.Machine) { cloneOf(*m).ResourcePool = "/DC0/host/DC0_C0/nothing" },
			"resourcePool: vCenter lab has no resource pool, cluster or host at /DC0/host/DC0_C0/nothing, or does not show it"},
		"no datastore": {func(m *runtime.Machine) { cloneOf(*m).Datastore = "/DC0/datastore/nothing" },
			"datastore: vCenter lab has no datastore at /DC0/datastore/nothing, or does not show it"},
		"no network": {func(m *runtime.Machine) { cloneOf(*m).Networks[0] = "/DC0/network/nothing" },
			"networks: vCenter lab has no network at /DC0/network/nothing, or does not show it"},
		"a smaller disk": {func(m *runtime.Machine) {
			cloneOf(*m).Disks = []v1alpha1.VSphereCloneDisk{{Size: resource.MustParse("1023Mi")}}
		}, "disks[0].size: the disk cannot be 1023Mi: the template's disk has 1Gi, and disks cannot shrink"},
		"a disk too many": {func(m *runtime.Machine) {
			cloneOf(*m).Disks = []v1alpha1.VSphereCloneDisk{{Size: resource.MustParse("1Gi")}, {Size: resource.MustParse("1Gi")}}
		}, "disks: the template at /DC0/vm/template-of-t has 1 disks, not 2"},
		"disks that the datastore cannot hold": {func(m *runtime.Machine) {
			cloneOf(*m).Disks = []v1alpha1.VSphereCloneDisk{{Size: resource.MustParse("900Ti")}}
		}, "datastore: /DC0/datastore/LocalDS_0 has room for "},
		"no host": {func(m *runtime.Machine) { m.Spec.NodeName = "nobody" },
			"spec.nodeName: the machine's cluster has no host nobody"},
		"too much user data": {func(m *runtime.Machine) { m.CloudInit.UserData = runtime.Secret(noise()) },
			"cloudInit.secretRef: user-data takes "},
		"metadata that is none": {func(m *runtime.Machine) { m.CloudInit.MetaData = "hunter2" },
			"cloudInit.secretRef: meta-data of the Secret is not an object in YAML or JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, w.VCenter)
			m := w.cloned("t")
			defer w.Remove("/DC0/vm/template-of-t")
			c.change(&m)
			_, err := w.runtime.Ensure(t.Context(), m)
			if !runtime.IsInvalidSpec(err) || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "spec.runtime.vsphere.clone."), c.want) {
				t.Errorf("got %v", err)
			}
			if seen := w.observe(m); seen.Exists {
				t.Error("it was made")
			}
		})
	}
}

// noise cannot be compressed.
func noise() string {
	var text strings.Builder
	for x := uint64(88172645463325252); text.Len() < 80<<10; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		text.WriteByte(byte(x))
	}
	return text.String()
}

// Of several requests for one machine, from several processes, one makes it, and the last failure is not theirs.
func TestCloneOnce(t *testing.T) {
	w := newWorld(t)
	m := w.cloned("web")
	release := w.Hold(string(cloneOf(m).Template.InventoryPath), runtime.TaskCreate)
	var all sync.WaitGroup
	for range 4 {
		another := worldOf(t, w.VCenter)
		all.Go(func() {
			if _, err := another.runtime.Ensure(t.Context(), m); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	release()
	w.ensure(m)
	n := 0
	for _, path := range w.Machines() {
		if w.State(path).ExtraConfig[machine.OwnerKey] == string(m.UID) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("there are %d machines", n)
	}
}

// A clone that fails after it was begun shows why, and is tried again.
func TestCloneThatFails(t *testing.T) {
	w := newWorld(t)
	m := w.cloned("web")
	uid := string(m.UID)
	squatter := w.machine("ns-web-" + uid[len(uid)-12:])
	_, err := w.runtime.Ensure(t.Context(), m)
	w.Must(err)
	if seen := w.observe(m); seen.Exists || !strings.Contains(seen.LastFailure, "DuplicateName") {
		t.Errorf("got %+v", seen)
	}
	w.Remove(w.path(squatter))
	w.ensure(m)
}

// A clone of somebody else's, or of another machine, is not taken for one's own.
func TestClonesOfOthers(t *testing.T) {
	w := newWorld(t)
	one, other := w.cloned("one"), w.cloned("other")
	*cloneOf(other) = *cloneOf(one)
	defer w.Hold(string(cloneOf(one).Template.InventoryPath), runtime.TaskCreate)()
	_, err := w.runtime.Ensure(t.Context(), one)
	w.Must(err)
	seen, err := w.runtime.Observe(t.Context(), other)
	if err != nil || !seen.Quiet() {
		t.Errorf("got %+v, %v", seen, err)
	}
	w.Must(w.runtime.Delete(t.Context(), other))
	if seen, err = w.runtime.Observe(t.Context(), one); err != nil || seen.Quiet() {
		t.Errorf("got %+v, %v", seen, err)
	}
}

// The simulator destroys every disk that is attached, as a vCenter does. Those that are not the machine's own are detached before.
func TestDestroyKeepsDisksOfOthers(t *testing.T) {
	w := newWorld(t)
	m := w.ensure(w.cloned("web"))
	own := w.Hardware(w.path(m)).Files[0]
	volume := w.AttachDisk(w.path(m), "volume")
	if !w.HasFile(own) || !w.HasFile(volume) || len(w.Hardware(w.path(m)).Files) != 2 {
		t.Fatalf("the machine does not have both disks: %v", w.Hardware(w.path(m)))
	}
	w.Must(w.runtime.Delete(t.Context(), m))
	w.Eventually("it is gone", func() bool { return !w.observe(m).Exists })
	if w.HasFile(own) || !w.HasFile(volume) {
		t.Errorf("the own disk is there: %v, that of somebody else: %v", w.HasFile(own), w.HasFile(volume))
	}
}

// A machine that is off gets its new size with the next power-on; one that is on gets what it can be given.
func TestSize(t *testing.T) {
	w := newWorld(t)
	m := w.cloned("web")
	m.Spec.CPU = new(int32(2))
	m = w.ensure(m)
	size := func() string { h := w.Hardware(w.path(m)); return fmt.Sprintf("%d, %d MB", h.CPUs, h.MemoryMB) }
	differs := func(want ...runtime.Difference) {
		t.Helper()
		if diff := cmp.Diff(want, w.observe(m).Differences); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	differs()
	m.Spec.CPU, m.Spec.Memory = new(int32(4)), new(resource.MustParse("64Mi"))
	differs(runtime.Difference{Field: "spec.cpu", Is: "2", Wanted: "4"}, runtime.Difference{Field: "spec.memory", Is: "32Mi", Wanted: "64Mi"})
	first := w.on(m)
	if differs(); size() != "4, 64 MB" {
		t.Errorf("after the power-on it has %s", size())
	}
	m.Spec.CPU = new(int32(8))
	w.Must(w.runtime.Adjust(t.Context(), m))
	if differs(runtime.Difference{Field: "spec.cpu", Is: "4", Wanted: "8"}); size() != "4, 64 MB" {
		t.Errorf("without hot-add it has %s", size())
	}
	w.AllowHotAdd(w.path(m))
	differs(runtime.Difference{Field: "spec.cpu", Is: "4", Wanted: "8", Live: true})
	w.Must(w.runtime.Adjust(t.Context(), m))
	m.Spec.Memory = new(resource.MustParse("32Mi"))
	if differs(runtime.Difference{Field: "spec.memory", Is: "64Mi", Wanted: "32Mi"}); size() != "8, 64 MB" {
		t.Errorf("with hot-add it has %s", size())
	}
	if seen := w.on(m); seen.Incarnation != first.Incarnation {
		t.Error("it was restarted")
	}
}

// What somebody else has changed is put back with the next power-on. What the spec leaves to the template is nobody's business.
func TestSizeDrift(t *testing.T) {
	w := newWorld(t)
	m := w.cloned("web")
	m.Spec.CPU = new(int32(2))
	m = w.ensure(m)
	w.SetSize(w.path(m), 1, 128)
	w.on(m)
	if h := w.Hardware(w.path(m)); h.CPUs != 2 || h.MemoryMB != 128 {
		t.Errorf("got %+v", h)
	}
	adopted := w.adopted("theirs")
	adopted.Spec.CPU = new(int32(7))
	w.on(adopted)
	if h := w.Hardware(w.path(adopted)); h.CPUs == 7 {
		t.Error("the size of a machine that was adopted was changed")
	}
}

// A size that vCenter refuses names its field, and leaves the machine off and the size as it was.
func TestSizeRefused(t *testing.T) {
	w := newWorld(t)
	m := w.ensure(w.cloned("web"))
	m.Spec.CPU = new(int32(700))
	err := w.runtime.PowerOn(t.Context(), m)
	if !runtime.IsInvalidSpec(err) || !strings.HasPrefix(runtime.Message(err), "spec.cpu: vCenter lab refused with InvalidArgument") {
		t.Errorf("got %v", err)
	}
	if seen := w.observe(m); seen.Power != v1alpha1.PowerStopped || w.Hardware(w.path(m)).CPUs != 1 {
		t.Errorf("got %+v", seen)
	}
	w.faults.Refuse(&types.ConcurrentAccess{}, "ReconfigVM_Task")
	m.Spec.CPU = new(int32(3))
	w.on(m) // somebody else was first, and it is decided once more
}

// A storage policy is looked for by its name, and the datastore has to satisfy it. In the simulator every one does.
func TestCloneWithStoragePolicy(t *testing.T) {
	w := newWorld(t)
	p := newProxy(w)
	rt := w.at(func(c *session.Config) {
		c.URL, c.CABundle = p.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	})
	m := w.cloned("web-1")
	refused := func(policy, why string) {
		t.Helper()
		cloneOf(m).StoragePolicy = policy
		_, err := rt.Ensure(t.Context(), m)
		if want := "spec.runtime.vsphere.clone.storagePolicy: " + why; !runtime.IsInvalidSpec(err) || runtime.Message(err) != want {
			t.Errorf("got %v", err)
		}
	}
	refused("gold", `vCenter lab has no storage policy "gold", or does not show it`)
	p.strict.Store(true)
	refused("vSAN Default Storage Policy", `the datastore /DC0/datastore/LocalDS_0 does not satisfy the storage policy "vSAN Default Storage Policy"`)
	p.strict.Store(false)
	_, err := rt.Ensure(t.Context(), m)
	w.Must(err)
	w.ensure(m)
}
