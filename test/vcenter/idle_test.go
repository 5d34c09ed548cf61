//go:build !race

package vcenter

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/test/env/install"
)

var (
	idle    = flag.Int("idle", 0, "measure what so many machines at rest cost, by TestIdle")
	idleFor = flag.Duration("idle-for", 5*time.Minute, "how long that is measured")
)

// What a fleet at rest costs. It is measured, and not held against anything:
//
//	go test ./test/vcenter -run TestIdle -idle 5000 -timeout 1h -v
//
// Every second one is of those that we make. The simulator takes long to tell of a change among so many machines, and so they bear their
// marker, and are there, before anybody looks.
func TestIdle(t *testing.T) {
	if *idle == 0 {
		t.Skip("it is only measured when it is asked for: -idle 5000")
	}
	s := maker(t)
	s.Must(stack.sallyport.Stop())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "sallyport-manager"}}
	s.Must(client.IgnoreNotFound(stack.client.Delete(t.Context(), lease)))
	lease.ResourceVersion = ""
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("nobody"), LeaseDurationSeconds: new(int32(3600)),
		AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
	}
	s.Must(stack.client.Create(t.Context(), lease))
	s.Must(stack.sallyport.Resume(t.Context(), stack.options))
	for i := range *idle {
		path, vm := s.atRest(fmt.Sprintf("idle-%d", i), i%2 == 0)
		s.vcenter.SetExtraConfig(path, map[string]string{vsphere.OwnerKey: string(vm.UID)})
	}
	lease.Spec.HolderIdentity = new("") // released
	s.Must(stack.client.Update(t.Context(), lease))
	for ready := 0; ready < *idle; time.Sleep(time.Second) { // for as long as so many take
		ready = 0
		for _, vm := range s.machines() {
			if vm.Status.InstanceID != "" && vm.Status.Phase == v1alpha1.VirtualMachineStopped {
				ready++
			}
		}
		t.Logf("%d machines are at rest", ready)
	}
	looked := -1
	for before := -2; before != looked; time.Sleep(5 * time.Second) { // until nobody looks any more
		before, looked = looked, s.looked()
	}

	measures := map[string]func() int{
		"requests to the vCenter":             s.vcenter.Requests,
		"looks at machines":                   s.looked,
		"requests to the API server":          func() int { return s.metric("rest_client_requests_total", "") },
		"reconciles of machines":              func() int { return s.metric("controller_runtime_reconcile_total", `controller="virtualmachine"`) },
		"resident memory of the manager, MiB": func() int { return s.metric("process_resident_memory_bytes", "") >> 20 },
	}
	before := map[string]int{}
	for what, measure := range measures {
		before[what] = measure()
	}
	time.Sleep(*idleFor)
	for what, measure := range measures {
		t.Logf("%d machines, %s: %s: %d (%d at first)", *idle, *idleFor, what, measure()-before[what], before[what])
	}
}

// atRest has a machine, one that we have made or one to be adopted, that is off and is to stay so.
func (s *site) atRest(name string, made bool) (path string, vm *v1alpha1.VirtualMachine) {
	if !made {
		return s.machine(name), s.adopt(s.vm(name))
	}
	vm = s.made(func(spec *v1alpha1.VirtualMachineSpec) {
		spec.RunPolicy, spec.CPU, spec.Memory = v1alpha1.RunPolicyManual, nil, nil
	})
	vm.Name = name
	s.adopt(vm)
	path = s.machine(strings.TrimPrefix(s.place(vm), "/DC0/vm/"))
	s.vcenter.SetInstanceUUID(path, string(vm.UID))
	return path, vm
}
