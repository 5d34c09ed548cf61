//go:build !race

package vcenter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// maker gives a site whose tenant may make machines from its template.
func maker(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	_, err := s.vcenter.AddTemplate("template")
	s.Must(err)
	s.login(map[string]string{"username": s.user, "password": s.password})
	s.shows(s.declare(func(spec *v1alpha1.VSphereServerSpec) {
		tenant := &spec.Tenants[0]
		tenant.ResourcePools = []v1alpha1.InventoryPath{"/DC0/host/DC0_C0"}
		tenant.Datastores = []v1alpha1.InventoryPath{"/DC0/datastore/LocalDS_0"}
		tenant.Networks = []v1alpha1.InventoryPath{"/DC0/network/VM Network"}
		tenant.Templates = []v1alpha1.InventoryPath{"/DC0/vm/template"}
		tenant.StoragePolicies = []string{"vSAN Default Storage Policy"}
	}), connected)
	return s
}

// made is a VirtualMachine that was not created yet, which is cloned from the template.
func (s *site) made(change ...func(*v1alpha1.VirtualMachineSpec)) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "web"}, Spec: v1alpha1.VirtualMachineSpec{
		CPU: new(int32(2)), Memory: new(resource.MustParse("64Mi")), TerminationGracePeriodSeconds: new(int32(0)),
		Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
			ServerRef: v1alpha1.VSphereServerReference{Name: s.name},
			Clone: &v1alpha1.VSphereClone{
				Template: v1alpha1.VSphereCloneSource{InventoryPath: "/DC0/vm/template"},
				Folder:   "/DC0/vm", ResourcePool: "/DC0/host/DC0_C0/Resources", Datastore: "/DC0/datastore/LocalDS_0",
				Networks: []v1alpha1.InventoryPath{"/DC0/network/VM Network"},
			},
		}},
	}}
	for _, c := range change {
		c(&vm.Spec)
	}
	return vm
}

// place is where the machine of a VirtualMachine is.
func (s *site) place(vm *v1alpha1.VirtualMachine) string {
	uid := string(vm.UID)
	return "/DC0/vm/" + vm.Namespace + "-" + vm.Name + "-" + uid[len(uid)-12:]
}

func withUserData(secret string) func(*v1alpha1.VirtualMachineSpec) {
	return func(spec *v1alpha1.VirtualMachineSpec) {
		spec.Runtime.VSphere.Clone.CloudInit = &v1alpha1.CloudInit{SecretRef: v1alpha1.CloudInitSecretReference{Name: secret}}
	}
}

// From nothing to a machine that runs, with another size after a restart, and to nothing again.
func TestMachineMade(t *testing.T) {
	t.Parallel()
	s := maker(t)
	vm := s.adopt(s.made())
	s.shows(vm, asWanted)
	want := vcsim.Hardware{CPUs: 2, MemoryMB: 64, Disks: []int64{1 << 30}, Networks: []string{"VM Network"}}
	got := s.vcenter.Hardware(s.place(vm))
	got.Files = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.owned(s.place(vm), vm)
	s.until("it is on", func() string { return string(s.vcenter.State(s.place(vm)).Power) }, "Running")
	update(s, vm, func(vm *v1alpha1.VirtualMachine) { vm.Spec.CPU = new(int32(4)) })
	s.until("it says what it takes", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		c := meta.FindStatusCondition(vm.Status.Conditions, string(v1alpha1.ConditionRestartRequired))
		if c == nil || c.Status != metav1.ConditionTrue {
			return ""
		}
		return c.Message
	}, "spec.cpu is 4, but the machine has 2: restart required (kubectl sallyport restart web -n "+s.name+")")
	s.patiently(func() error {
		return stack.Client.Create(s.Context(), &v1alpha1.VirtualMachineOperation{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "restart"},
			Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationRestart, VirtualMachineName: vm.Name, Force: true},
		})
	})
	s.until("it has more processors", func() string { return fmt.Sprint(s.vcenter.Hardware(s.place(vm)).CPUs) }, "4")
	s.shows(vm, asWanted)
	s.remove(vm)
	if s.vcenter.State(s.place(vm)).InstanceUUID != "" {
		t.Error("the machine is still there")
	}
}

// A machine that leaves its datastore to its storage policy is made on one that its tenant may use, and not on a larger one of others.
func TestMachineMadeOnSomeDatastore(t *testing.T) {
	t.Parallel()
	s := maker(t)
	s.vcenter.ChangeDatastore("LocalDS_0", func(summary *types.DatastoreSummary) { summary.FreeSpace = summary.Capacity / 2 })
	vm := s.adopt(s.made(func(spec *v1alpha1.VirtualMachineSpec) {
		spec.Runtime.VSphere.Clone.Datastore, spec.Runtime.VSphere.Clone.StoragePolicy = "", "vSAN Default Storage Policy"
	}))
	s.shows(vm, asWanted)
	if files := s.vcenter.Hardware(s.place(vm)).Files; len(files) != 1 || !strings.HasPrefix(files[0], "[LocalDS_0] ") {
		t.Errorf("its files are %v", files)
	}
}

// What a tenant may not use is refused when it is asked for.
func TestMachineMadeElsewhere(t *testing.T) {
	t.Parallel()
	s := maker(t)
	for name, change := range map[string]func(*v1alpha1.VSphereClone){
		"TemplateNotAllowed":      func(c *v1alpha1.VSphereClone) { c.Template.InventoryPath = "/DC0/vm/other" },
		"FolderNotAllowed":        func(c *v1alpha1.VSphereClone) { c.Folder = "/DC1/vm" },
		"ResourcePoolNotAllowed":  func(c *v1alpha1.VSphereClone) { c.ResourcePool = "/DC0/host/DC0_C1/Resources" },
		"DatastoreNotAllowed":     func(c *v1alpha1.VSphereClone) { c.Datastore = "/DC0/datastore/other" },
		"StoragePolicyNotAllowed": func(c *v1alpha1.VSphereClone) { c.StoragePolicy = "other" },
		"NetworkNotAllowed":       func(c *v1alpha1.VSphereClone) { c.Networks[0] = "/DC0/network/other" },
	} {
		vm := s.made(func(spec *v1alpha1.VirtualMachineSpec) { change(spec.Runtime.VSphere.Clone) })
		s.until("it is refused with "+name, func() string {
			err := stack.Client.Create(s.Context(), vm.DeepCopy())
			if err == nil {
				t.Fatalf("%s: it was admitted", name)
			}
			if strings.Contains(err.Error(), "[servers-tenancy/"+name+"]") {
				return "yes"
			}
			return err.Error()
		}, "yes")
	}
}

// What the vCenter does not have is refused when it is asked for, and not any more once the vCenter was looked at again.
func TestMachineMadeOfNothing(t *testing.T) {
	t.Parallel()
	s := maker(t)
	vm := s.made(func(spec *v1alpha1.VirtualMachineSpec) {
		spec.Runtime.VSphere.Clone.Template.InventoryPath = "/DC0/vm/new"
	})
	server := &v1alpha1.VSphereServer{}
	server.Name = s.name
	allow := func(template v1alpha1.InventoryPath) {
		update(s, server, func(server *v1alpha1.VSphereServer) {
			server.Spec.Tenants[0].Templates = append(server.Spec.Tenants[0].Templates, template)
		})
		s.shows(server, connected)
	}
	allow("/DC0/vm/new")
	created := func(options ...client.CreateOption) func() string {
		return func() string { return fmt.Sprint(stack.Client.Create(s.Context(), vm, options...)) }
	}
	// The webhook may see the list a moment later than we do.
	s.until("it is refused", created(client.DryRunAll), fmt.Sprintf("admission webhook \"validate.sallyport.dev\" denied the request: "+
		"[servers-tenancy/PlaceNotFound] spec.runtime.vsphere.clone.template.inventoryPath: template /DC0/vm/new does not exist on "+
		"VSphereServer %[1]s; available to namespace %[1]s: /DC0/vm/template; new ones appear in status.inventory within a minute: "+
		"kubectl get vsphereserver %[1]s -o yaml", s.name))
	_, err := s.vcenter.AddTemplate("new")
	s.Must(err)
	allow("/DC0/vm/other") // a change is looked at at once
	s.until("it is admitted", created(), "<nil>")
	s.shows(vm, asWanted)
}

// What has gone since the machine was admitted is named, and the machine is made as soon as it is there.
func TestMachineMadeLater(t *testing.T) {
	t.Parallel()
	s := maker(t)
	host := s.vcenter.Hosts()[1]
	s.vcenter.SetHost(host, true, true)
	vm := s.adopt(s.made(func(spec *v1alpha1.VirtualMachineSpec) { spec.NodeName = host }))
	s.warns(vm, "False", "InvalidSpec spec.nodeName: the host "+host+" is not connected or in maintenance mode")
	s.vcenter.Remove("/DC0/vm/template")
	update(s, vm, func(vm *v1alpha1.VirtualMachine) { vm.Spec.NodeName = "" })
	s.shows(vm, "False InvalidSpec spec.runtime.vsphere.clone.template.inventoryPath: vCenter "+s.name+" has no template at /DC0/vm/template, or does not show it")
	_, err := s.vcenter.AddTemplate("template")
	s.Must(err)
	s.shows(vm, asWanted)
}

// A Secret that is not there, that lacks what is needed, and that has it.
func TestMachineMadeWithUserData(t *testing.T) {
	t.Parallel()
	s := maker(t)
	vm := s.adopt(s.made(withUserData("cloud")))
	field := "False InvalidSpec spec.runtime.vsphere.clone.cloudInit.secretRef: Secret cloud "
	s.shows(vm, field+"does not exist")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "cloud"}, StringData: map[string]string{"userdata": "misspelt"}}
	s.create(secret)
	s.shows(vm, field+"has neither user-data nor meta-data")
	text := "#cloud-config\npassword: hunter2-" + s.name
	secrets.add("hunter2-" + s.name)
	secret.StringData = map[string]string{"user-data": text}
	s.Must(stack.Client.Update(s.Context(), secret))
	s.shows(vm, asWanted)
	config := s.vcenter.State(s.place(vm)).ExtraConfig
	if config["guestinfo.userdata"] == "" || config["guestinfo.metadata"] == "" || config[machine.OwnerKey] != string(vm.UID) {
		t.Errorf("got %v", config)
	}
}
