//go:build !race

package vcenter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A machine moves to a host that the VSphereServer lists and that is not in maintenance mode, whether its spec or an operation says so.
func TestHostsThatMachinesMoveTo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.login(map[string]string{"username": s.user, "password": s.password})
	server := s.declare()
	s.shows(server, connected)
	path := s.machine("web")
	vm := s.adopt(s.vm("web"))
	s.shows(vm, asWanted)

	refused := func(host, reason, want string) {
		t.Helper()
		migrate := &v1alpha1.VirtualMachineOperation{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "migrate"},
			Spec: v1alpha1.VirtualMachineOperationSpec{
				Type: v1alpha1.OperationMigrate, VirtualMachineName: vm.Name, Migrate: &v1alpha1.MigrateTarget{NodeName: host},
			},
		}
		changed := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"nodeName":%q}}`, host))
		for field, request := range map[string]func() error{
			"spec.nodeName":         func() error { return stack.Client.Patch(s.Context(), vm.DeepCopy(), changed, client.DryRunAll) },
			"spec.migrate.nodeName": func() error { return stack.Client.Create(s.Context(), migrate.DeepCopy(), client.DryRunAll) },
		} {
			want := fmt.Sprintf("[placement-migration/%s] %s: %s", reason, field, want)
			s.until(field+" "+host+" is refused", func() string {
				if err := request(); err == nil || !strings.Contains(err.Error(), want) {
					return fmt.Sprint(err)
				}
				return want
			}, want)
		}
	}
	refused("esx-9", "NodeUnknown", fmt.Sprintf("VSphereServer %s has no host esx-9; use another host (available: ", s.name))

	home, goal := s.vcenter.State(path).Host, s.vcenter.OtherHost(path)
	third := s.vcenter.Hosts()[slices.IndexFunc(s.vcenter.Hosts(), func(host string) bool { return host != home && host != goal })]
	s.vcenter.SetHost(third, true, true)
	update(s, server, func(server *v1alpha1.VSphereServer) { // a change is looked at at once
		server.Spec.Tenants[0].Templates = []v1alpha1.InventoryPath{"/DC0/vm/other"}
	})
	s.shows(server, connected)
	refused(third, "NodeUnschedulable", fmt.Sprintf("VirtualMachine web cannot be moved because host %s of VSphereServer %s is in "+
		"maintenance mode; end maintenance mode in vCenter, or use another host (available: %s)", third, s.name, goal))

	update(s, vm, func(vm *v1alpha1.VirtualMachine) { vm.Spec.NodeName = goal })
	s.until("the machine has moved", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		settled := meta.FindStatusCondition(vm.Status.Conditions, string(v1alpha1.ConditionPlacementSettled))
		if settled == nil || settled.ObservedGeneration != vm.Generation || vm.Busy() {
			return fmt.Sprintf("%+v", vm.Status)
		}
		return fmt.Sprintf("%s %s %s", settled.Status, settled.Reason, vm.Status.NodeName)
	}, "True OnNode "+goal)
	if host := s.vcenter.State(path).Host; host != goal {
		t.Errorf("vCenter has the machine on %s, want %s", host, goal)
	}
}
