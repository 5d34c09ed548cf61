//go:build !race

package vcenter

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
)

// untouched runs a test and checks that the machine was left as it was.
func (s *site) untouched(path string, test func()) {
	s.Helper()
	before := s.vcenter.State(path)
	test()
	if diff := cmp.Diff(before, s.vcenter.State(path)); diff != "" {
		s.Errorf("the machine at %s was changed (-before +after):\n%s", path, diff)
	}
}

// owned checks whose the machine at a path is.
func (s *site) owned(path string, vm *v1alpha1.VirtualMachine) {
	s.Helper()
	s.until("the machine is that of "+vm.Name, func() string { return s.vcenter.State(path).ExtraConfig[machine.OwnerKey] }, string(vm.UID))
}

// refuses checks that a VirtualMachine is refused by the policy, with the whole message.
func (s *site) refuses(vm *v1alpha1.VirtualMachine, reason, message string) {
	s.Helper()
	s.until("it is refused", func() string {
		err := stack.Client.Create(s.Context(), vm.DeepCopy())
		if err == nil {
			s.Fatal("it was admitted")
		}
		return err.Error()
	}, fmt.Sprintf(`admission webhook "validate.sallyport.dev" denied the request: [servers-tenancy/%s] %s`, reason, message))
}

// A path that leads to nothing, until the machine is there.
func TestMachineAbsent(t *testing.T) {
	t.Parallel()
	s := newSite(t).ready()
	vm := s.adopt(s.vm("web"))
	s.warns(vm, "False", fmt.Sprintf("InstanceNotFound spec.runtime.vsphere.inventoryPath: vCenter %s has no machine at /DC0/vm/web, or does not show it", s.name))
	path := s.machine("web")
	s.shows(vm, asWanted)
	s.owned(path, vm)
}

// An instance UUID that no machine has.
func TestMachineUUIDOfNobody(t *testing.T) {
	t.Parallel()
	s := newSite(t).ready()
	path := s.machine("web")
	nobody := "50120a8b-7a3c-4bde-9f00-0123456789ab"
	byUUID := func(uuid string) func(*v1alpha1.VSphereRuntime) {
		return func(r *v1alpha1.VSphereRuntime) { r.InventoryPath, r.InstanceUUID = "", uuid }
	}
	s.untouched(path, func() {
		vm := s.adopt(s.vm("web", byUUID(nobody)))
		s.warns(vm, "False", fmt.Sprintf("InstanceNotFound spec.runtime.vsphere.instanceUUID: vCenter %s has no machine with the instance UUID %s, or does not show it", s.name, nobody))
		s.remove(vm)
	})
	vm := s.adopt(s.vm("web", byUUID(s.vcenter.State(path).InstanceUUID)))
	s.shows(vm, asWanted)
	s.owned(path, vm)
}

// A machine with the marker of another owner is left alone until that has let it go.
func TestMachineForeign(t *testing.T) {
	t.Parallel()
	s := newSite(t).ready()
	path := s.machine("web")
	s.vcenter.SetExtraConfig(path, map[string]string{machine.OwnerKey: "6a8e1d0c-0000-0000-0000-000000000000"})
	vm := s.vm("web")
	s.untouched(path, func() {
		s.adopt(vm)
		s.warns(vm, "False", foreign(path, "another VirtualMachine", ""))
		s.retried(vm)
	})
	s.vcenter.SetExtraConfig(path, map[string]string{machine.OwnerKey: ""})
	s.shows(vm, asWanted)
	s.owned(path, vm)
}

func foreign(path, whose, wayOut string) string {
	return fmt.Sprintf("OwnedByAnother spec.runtime.vsphere: the machine at %s belongs to %s, or is a copy of a machine that does. Name another machine%s. "+
		"If it is a copy, or its VirtualMachine no longer exists, remove sallyport.owner from its extraConfig in vCenter "+
		"(docs/vsphere.md, What Sallyport leaves on a machine)", path, whose, wayOut)
}

// Of two VirtualMachines that name one machine the first has it, and when that goes the second.
func TestMachineShared(t *testing.T) {
	t.Parallel()
	s := newSite(t).ready()
	path := s.machine("web")
	first := s.adopt(s.vm("web"))
	s.shows(first, asWanted)
	second := s.vm("web")
	second.Name = "web-2"
	s.adopt(second)
	s.warns(second, "False", foreign(path, "VirtualMachine "+first.Name+" of this namespace",
		", or delete VirtualMachine "+first.Name+", which leaves the machine as it is"))
	s.owned(path, first)
	s.shows(first, asWanted)
	s.remove(first)
	s.shows(second, asWanted)
	s.owned(path, second)
}

// A template is no machine.
func TestMachineTemplate(t *testing.T) {
	t.Parallel()
	s := newSite(t).ready()
	path := s.machine("web")
	s.vcenter.SetTemplate(path, true)
	vm := s.vm("web")
	s.untouched(path, func() {
		s.adopt(vm)
		s.warns(vm, "False", "InvalidSpec spec.runtime.vsphere: the machine is marked as a template in vCenter, so that it can be neither "+
			"started nor changed: convert it to a virtual machine there (in the vSphere Client, or with govc vm.markasvm), or name another machine")
	})
	s.vcenter.SetTemplate(path, false)
	s.shows(vm, asWanted)
	s.owned(path, vm)
}

// howToBeTenant is the remedy of the policy, which ends its refusals.
const howToBeTenant = ". Ask an administrator for an entry in spec.tenants of the VSphereServer, or use another VSphereServer."

// A namespace that may not use the vCenter is told so at once.
func TestTenantRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t).ready()
	path := s.machine("web")
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-strangers"}})
	vm := s.vm("web")
	vm.Namespace = s.name + "-strangers"
	s.untouched(path, func() {
		s.refuses(vm, "NamespaceNotAllowed",
			fmt.Sprintf("namespace %s has no access to VSphereServer %s because no entry in its spec.tenants matches the namespace%s", vm.Namespace, s.name, howToBeTenant))
	})
}

// What was allowed and is no more: the machine is out of reach, but can be given back.
func TestTenantWithdrawn(t *testing.T) {
	t.Parallel()
	s := newSite(t).ready()
	path := s.machine("web")
	vm := s.adopt(s.vm("web"))
	s.shows(vm, asWanted)
	server := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	tenants := s.tenants(server, nil)
	denied := fmt.Sprintf("PermissionDenied [servers-tenancy/NamespaceNotAllowed] namespace %s has no access to VSphereServer %s because no entry in its spec.tenants matches the namespace%s", s.name, s.name, howToBeTenant)
	s.untouched(path, func() {
		s.warns(vm, "False", denied)
		start := s.ask(vm, v1alpha1.OperationStart)
		s.fails(start, "False "+denied)
		s.remove(start)
		s.shows(vm, "False "+denied)
	})
	s.tenants(server, tenants)
	s.shows(vm, asWanted)
	s.tenants(server, nil)
	s.shows(vm, "False "+denied)
	s.remove(vm)
	s.until("the machine was given back", func() string { return s.vcenter.State(path).ExtraConfig[machine.OwnerKey] }, "")
}

// fails waits until the condition Completed of an operation says that, as status, reason and message.
func (s *site) fails(o *v1alpha1.VirtualMachineOperation, want string) {
	s.Helper()
	s.until(o.Name+" says why", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
		c := meta.FindStatusCondition(o.Status.Conditions, string(v1alpha1.ConditionCompleted))
		if c == nil {
			return ""
		}
		return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
	}, want)
}

// tenants changes who may use the vCenter, and gives who could before.
func (s *site) tenants(server *v1alpha1.VSphereServer, tenants []v1alpha1.VSphereTenant) (before []v1alpha1.VSphereTenant) {
	s.Helper()
	update(s, server, func(server *v1alpha1.VSphereServer) { before, server.Spec.Tenants = server.Spec.Tenants, tenants })
	return before
}

// An instance UUID does not lead out of the folders.
func TestTenantFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t).ready()
	path := s.machine("web")
	server := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	within := func(folder v1alpha1.InventoryPath) {
		update(s, server, func(server *v1alpha1.VSphereServer) { server.Spec.Tenants[0].Folders[0] = folder })
	}
	within("/DC0/vm/team")
	vm := s.vm("web", func(r *v1alpha1.VSphereRuntime) {
		r.InventoryPath, r.InstanceUUID = "", s.vcenter.State(path).InstanceUUID
	})
	s.untouched(path, func() {
		s.adopt(vm)
		s.warns(vm, "False", fmt.Sprintf("PermissionDenied [servers-tenancy/FolderNotAllowed] namespace %s may not adopt the machine because it is not below a folder "+
			"that VSphereServer %s allows; allowed folders: /DC0/vm/team", s.name, s.name))
		s.retried(vm)
	})
	within("/DC0/vm")
	s.shows(vm, asWanted)
	s.owned(path, vm)
}
