package claims

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/step"
)

// vSphere is a vCenter with its machines and First Class Disks, and users of it.
type vSphere struct {
	*world
	*vcsim.VCenter
	faults *vcsim.Faults
	server *session.Server
}

const templatePath = "/DC0/vm/template"

// newVSphere empties the vCenter, and logs in.
func newVSphere(w *world, v *vcsim.VCenter) *vSphere {
	s := &vSphere{world: w, VCenter: v, faults: &vcsim.Faults{}}
	for _, path := range s.paths() {
		v.SetPower(path, v1alpha1.PowerStopped)
		v.Consolidate(path)
		v.Remove(path)
	}
	for _, f := range v.FCDs() {
		v.Forget(f.ID)
	}
	server, err := session.NewServer(session.Config{
		Name: "lab", URL: v.URL(), CABundle: v.CABundle(), Wrap: func(next soap.RoundTripper) soap.RoundTripper { return &guarded{s, s.faults.Wrap(next)} },
		Credentials: func(context.Context) (*url.Userinfo, error) { return v.User(), nil },
	})
	w.must(err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), step.Patience)
		defer cancel()
		w.must(server.Close(ctx))
	})
	s.server = server
	return s
}

func (s *vSphere) guard() interceptor.Funcs { return interceptor.Funcs{} }

func (s *vSphere) runtime(client.Client) runtime.Runtime { return disk.New(s.server) }

func (s *vSphere) machine() v1alpha1.VirtualMachineRuntime { return s.template() }

func (s *vSphere) template() v1alpha1.VirtualMachineRuntime {
	return v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "lab"}, Clone: &v1alpha1.VSphereClone{
			Template: v1alpha1.VSphereCloneSource{InventoryPath: templatePath}, Folder: "/DC0/vm", ResourcePool: "/DC0/host/DC0_C0/Resources",
			Datastore: "/DC0/datastore/LocalDS_0", Networks: []v1alpha1.InventoryPath{"/DC0/network/VM Network"},
		},
	}}
}

func (s *vSphere) disk() v1alpha1.VirtualDiskRuntime {
	return v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{
		ServerRef: v1alpha1.VSphereServerReference{Name: "lab"}, Datastore: "/DC0/datastore/LocalDS_0",
	}}
}

// paths are the machines beside the template.
func (s *vSphere) paths() []string {
	return slices.DeleteFunc(s.Machines(), func(path string) bool { return path == templatePath })
}

// at returns the machine with that reference or instance UUID, or "".
func (s *vSphere) at(is func(path string) bool) string {
	all := s.paths()
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return ""
}

func (s *vSphere) goesOn() {
	for !s.Quiet() {
		time.Sleep(time.Millisecond)
	}
	s.collectGarbage()
}

func (s *vSphere) ends() {
	for _, path := range s.paths() {
		s.Consolidate(path)
	}
	s.faults.Clear()
}

func (s *vSphere) versions() string {
	all := fmt.Sprint(s.FCDs())
	for _, path := range s.paths() {
		all += fmt.Sprint(path, s.Version(path), s.State(path).Power, s.Disks(path), " ")
	}
	return all
}

func (s *vSphere) differs(vm *v1alpha1.VirtualMachine) string {
	path := s.at(func(path string) bool {
		return vm.Status.InstanceID != "" && s.State(path).InstanceUUID == vm.Status.InstanceID
	})
	if path == "" {
		return "has no machine"
	}
	switch power := s.State(path).Power; {
	case vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOn && power != v1alpha1.PowerRunning:
		return "is not on"
	case vm.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOff && power != v1alpha1.PowerStopped:
		return "is not off"
	}
	for _, d := range s.disks() {
		if vm.Spec.Names(d.Name) && !slices.Contains(s.Disks(path), d.Status.DiskID) {
			return "has no disk " + d.Name
		}
	}
	return ""
}

// guarded holds each change that Sallyport asks for against what was promised.
type guarded struct {
	*vSphere
	next soap.RoundTripper
}

// RoundTrip sends a request.
func (g *guarded) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	switch body := req.(type) {
	case *methods.AttachDisk_TaskBody:
		g.attaches(body.Req.This, body.Req.DiskId.Id)
	case *methods.DetachDisk_TaskBody:
		g.detaches(body.Req.This, body.Req.DiskId.Id)
	case *methods.DeleteVStorageObject_TaskBody:
		g.deletes(body.Req.Id.Id)
	case *methods.VCenterUpdateVStorageObjectMetadataEx_TaskBody:
		g.marks(body.Req.Id.Id, body.Req.Metadata)
	case *methods.Destroy_TaskBody:
		g.destroys(body.Req.This)
	}
	return g.next.RoundTrip(ctx, req, res)
}

// owner returns the VirtualMachine whose status names the machine, or nil.
func (g *guarded) owner(machine types.ManagedObjectReference) *v1alpha1.VirtualMachine {
	path := g.at(func(path string) bool { return g.MoRef(path) == machine.Value })
	for _, vm := range g.machines() {
		if path != "" && (vm.Status.InstanceID == g.State(path).InstanceUUID || string(vm.UID) == g.State(path).InstanceUUID) {
			return &vm
		}
	}
	return nil
}

// recorded returns the VirtualDisk whose status names the disk, or nil.
func (g *guarded) recorded(id string) *v1alpha1.VirtualDisk {
	for _, d := range g.disks() {
		if d.Status.DiskID == id {
			return &d
		}
	}
	return nil
}

func (g *guarded) attaches(machine types.ManagedObjectReference, id string) {
	vm, d := g.owner(machine), g.recorded(id)
	switch {
	case vm == nil || d == nil || d.Status.AttachedTo == nil || d.Status.AttachedTo.UID != vm.UID:
		g.breaks("disk %s is attached to %s, which no status records", id, machine.Value)
	case g.FCD(id).Consumers > 0:
		g.breaks("disk %s is attached to %s, while another machine has it", id, machine.Value)
	}
}

func (g *guarded) detaches(machine types.ManagedObjectReference, id string) {
	vm, d := g.owner(machine), g.recorded(id)
	leaves := vm != nil && !vm.DeletionTimestamp.IsZero() // a machine that is destroyed keeps no disk that is not its own
	if vm == nil || !leaves && (d == nil || d.Status.AttachedTo != nil && d.Status.AttachedTo.UID != vm.UID) {
		g.breaks("disk %s is detached from %s, which no status records", id, machine.Value)
	}
}

func (g *guarded) deletes(id string) {
	f := g.FCD(id)
	ours := slices.ContainsFunc(g.disks(), func(d v1alpha1.VirtualDisk) bool {
		unseen := d.Status.DiskID == "" && f.Metadata[machine.OwnerKey] == string(d.UID)
		return !d.DeletionTimestamp.IsZero() && (d.Status.DiskID == id || unseen)
	})
	if !ours || f.Consumers > 0 {
		g.breaks("disk %+v is deleted, which no VirtualDisk that is being deleted records, or which a machine has", f)
	}
}

func (g *guarded) marks(id string, metadata []types.KeyValue) {
	for _, d := range g.disks() {
		wanted := d.Annotations[v1alpha1.AnnotationTakeOver] == string(d.UID)
		if wanted && slices.Contains(metadata, types.KeyValue{Key: machine.OwnerKey, Value: string(d.UID)}) {
			return
		}
	}
	g.breaks("disk %s is marked as %v, without a decision", id, metadata)
}

func (g *guarded) destroys(machine types.ManagedObjectReference) {
	vm := g.owner(machine)
	if vm == nil || vm.DeletionTimestamp.IsZero() {
		g.breaks("machine %s is destroyed, which is no VirtualMachine's that is being deleted", machine.Value)
		return
	}
	path := g.at(func(path string) bool { return g.MoRef(path) == machine.Value })
	if disks := append(g.Disks(path), g.SnapshotDisks(path)...); len(disks) > 0 {
		g.breaks("machine %s is destroyed with the disks %v", path, disks)
	}
}

func (s *vSphere) users() map[string]func() {
	return map[string]func(){
		"foreign": s.foreign, "copy": s.copied, "attach by hand": s.attachByHand, "detach by hand": s.detachByHand, "move": s.moveDisk,
		"snapshot": s.snapshot, "power by hand": s.power, "destroy": s.destroy, "strip": s.strip, "lose a reply": s.loseReply, "lose a disk": s.loseDisk,
	}
}

// anyMachine returns a machine, of Sallyport or not, or "".
func (s *vSphere) anyMachine() string {
	if path := one(s.world, s.paths(), "path"); path != nil {
		return *path
	}
	return ""
}

func (s *vSphere) anyDisk() string {
	if f := one(s.world, s.FCDs(), "FCD"); f != nil {
		return f.ID
	}
	return ""
}

// foreign makes a machine of a user.
func (s *vSphere) foreign() {
	name := s.draw([]string{"f-0", "f-1"}, "name")
	if !slices.Contains(s.Machines(), "/DC0/vm/"+name) {
		s.Copy(templatePath, name)
	}
}

// copied is a machine that a user clones in vCenter, with its marks.
func (s *vSphere) copied() {
	if of, name := s.anyMachine(), s.draw([]string{"c-0", "c-1"}, "copy"); of != "" && !slices.Contains(s.Machines(), "/DC0/vm/"+name) {
		s.Copy(of, name)
	}
}

func (s *vSphere) attachByHand() {
	path, id := s.anyMachine(), s.anyDisk()
	if path != "" && id != "" && s.FCD(id).Consumers == 0 {
		s.HandAttach(path, s.FCD(id).File)
	}
}

func (s *vSphere) detachByHand() {
	if path := s.anyMachine(); path != "" {
		if id := one(s.world, s.Disks(path), "disk"); id != nil {
			s.HandDetach(path, *id)
		}
	}
}

func (s *vSphere) moveDisk() {
	if path := s.anyMachine(); path != "" {
		if id := one(s.world, s.Disks(path), "disk"); id != nil {
			s.Consolidate(path)
			s.MoveDisk(path, *id, s.draw([]string{"LocalDS_0", "LocalDS_1"}, "datastore"))
		}
	}
}

// snapshot takes a snapshot of a machine, or removes it.
func (s *vSphere) snapshot() {
	path := s.anyMachine()
	switch {
	case path == "":
	case s.flip("remove"):
		s.Consolidate(path)
	default:
		for _, id := range s.Disks(path) {
			s.SnapshotDisk(path, s.FCD(id).File)
		}
	}
}

// power has a machine of a user or of Sallyport be on or off.
func (s *vSphere) power() {
	if path := s.anyMachine(); path != "" {
		s.SetPower(path, rapid.SampledFrom([]v1alpha1.PowerState{v1alpha1.PowerRunning, v1alpha1.PowerStopped}).Draw(s.T, "power"))
	}
}

// destroy destroys a machine in vCenter, with what it has.
func (s *vSphere) destroy() {
	if path := s.anyMachine(); path != "" && s.State(path).Power == v1alpha1.PowerStopped {
		s.Consolidate(path)
		s.Remove(path)
	}
}

// strip removes the marks of a machine or of a disk.
func (s *vSphere) strip() {
	if s.flip("machine") {
		if path := s.anyMachine(); path != "" {
			s.SetExtraConfig(path, map[string]string{machine.OwnerKey: ""})
		}
	} else if id := s.anyDisk(); id != "" {
		s.SetMetadata(id, s.draw([]string{machine.OwnerKey, machine.NameKey}, "key"), "")
	}
}

// loseReply has a change of Sallyport be carried out, and its reply lost.
func (s *vSphere) loseReply() {
	s.faults.LoseReply(s.draw([]string{
		"CloneVM_Task", "CreateDisk_Task", "AttachDisk_Task", "DetachDisk_Task", "DeleteVStorageObject_Task", "Destroy_Task", "PowerOnVM_Task",
		"VCenterUpdateVStorageObjectMetadataEx_Task",
	}, "of"))
}

// loseDisk takes a disk away that no machine has.
func (s *vSphere) loseDisk() {
	if id := s.anyDisk(); id != "" && s.FCD(id).Consumers == 0 {
		s.Forget(id)
	}
}

func TestVSphere(t *testing.T) {
	v, err := vcsim.Start(vcsim.Options{Datastores: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	if _, err := v.AddTemplate(strings.TrimPrefix(templatePath, "/DC0/vm/")); err != nil {
		t.Fatal(err)
	}
	set(t, "rapid.checks", "20") // -short: a fifth, with half of the steps
	rapid.Check(t, func(t *rapid.T) {
		w := inMemory(t, t.Context())
		lives(w, newVSphere(w, v))
	})
}
