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
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/env/install"
)

var (
	fleet   = flag.Int("fleet", 0, "measure what so many machines cost that are created at once, by TestFleet")
	idle    = flag.Int("idle", 0, "measure what so many machines at rest cost, by TestIdle")
	idleFor = flag.Duration("idle-for", 5*time.Minute, "how long that is measured")
)

// costs logs what something costs by the metrics of the manager, in all and by machine.
func (s *site) costs(what string, machines int, do func()) {
	s.Helper()
	read := func() map[string]int {
		return map[string]int{
			"requests to the vCenter":             s.vcenter.Requests(),
			"observations":                        s.looked(),
			"reads of the API server":             s.metric("rest_client_requests_total", `method="GET"`),
			"writes to the API server":            s.metric("rest_client_requests_total", `method="P`),
			"reconciles of machines":              s.metric("controller_runtime_reconcile_total", `controller="virtualmachine"`),
			"resident memory of the manager, MiB": s.metric("process_resident_memory_bytes", "") >> 20,
		}
	}
	began, before := time.Now(), read()
	do()
	s.Logf("%s: %d machines in %s", what, machines, time.Since(began).Round(time.Millisecond))
	for name, after := range read() {
		s.Logf("  %s: %d, %.1f a machine (%d in all)", name, after-before[name], float64(after-before[name])/float64(machines), after)
	}
}

// await waits for as long as so many machines take until so many of the site are in a phase and free.
func (s *site) await(many int, phase v1alpha1.VirtualMachinePhase) {
	s.Helper()
	for began, n := time.Now(), -1; n != many; time.Sleep(100 * time.Millisecond) {
		n = 0
		for _, vm := range s.machines() {
			if vm.Namespace == s.name && (many == 0 || vm.Status.Phase == phase && vm.Status.InstanceID != "" && !vm.Busy()) {
				n++
			}
		}
		if time.Since(began) > time.Duration(max(*fleet, *idle))*30*time.Second {
			s.Fatalf("%d machines are %s, not %d", n, phase, many)
		}
	}
}

// A fleet is created at once, stopped, started and deleted. What that costs is logged, and not limited:
//
//	go test ./test/walks/vcenter -run TestFleet -fleet 500 -timeout 1h -v
func TestFleet(t *testing.T) {
	if *fleet == 0 {
		t.Skip("only measured on request: -fleet 500")
	}
	s := maker(t)
	each := func(do func(vm *v1alpha1.VirtualMachine)) {
		for i := range *fleet {
			vm := s.made()
			vm.Name = fmt.Sprintf("fleet-%d", i)
			do(vm)
		}
	}
	for _, chapter := range []struct {
		what  string
		do    func(vm *v1alpha1.VirtualMachine)
		phase v1alpha1.VirtualMachinePhase
	}{
		{"created and powered on", func(vm *v1alpha1.VirtualMachine) { s.adopt(vm) }, v1alpha1.VirtualMachineRunning},
		{"stopped", func(vm *v1alpha1.VirtualMachine) { s.ask(vm, v1alpha1.OperationStop) }, v1alpha1.VirtualMachineStopped},
		{"started", func(vm *v1alpha1.VirtualMachine) { s.ask(vm, v1alpha1.OperationStart) }, v1alpha1.VirtualMachineRunning},
	} {
		s.costs(chapter.what, *fleet, func() {
			each(chapter.do)
			s.await(*fleet, chapter.phase)
		})
	}
	each(func(vm *v1alpha1.VirtualMachine) { s.Must(client.IgnoreNotFound(stack.Client.Delete(s.Context(), vm))) })
	s.await(0, "")
	if left := s.vcenter.Machines(); len(left) != 1 { // the template
		t.Errorf("vCenter has %v", left)
	}
}

// What a fleet at rest costs is logged, and not limited:
//
//	go test ./test/walks/vcenter -run TestIdle -idle 5000 -timeout 1h -v
//
// Every second machine is a clone. The simulator takes long to report a change among so many machines, so they exist, with their marks,
// before a manager leads.
func TestIdle(t *testing.T) {
	if *idle == 0 {
		t.Skip("only measured on request: -idle 5000")
	}
	s := maker(t)
	s.Must(stack.Sallyport.Stop())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "sallyport-manager"}}
	s.Must(client.IgnoreNotFound(stack.Client.Delete(t.Context(), lease)))
	lease.ResourceVersion = ""
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("nobody"), LeaseDurationSeconds: new(int32(3600)),
		AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
	}
	s.create(lease)
	s.Must(stack.Sallyport.Resume(t.Context(), stack.Options))
	for i := range *idle {
		path, vm := s.atRest(fmt.Sprintf("idle-%d", i), i%2 == 0)
		s.vcenter.SetExtraConfig(path, map[string]string{machine.OwnerKey: string(vm.UID)})
	}
	lease.Spec.HolderIdentity = new("") // released
	s.Must(stack.Client.Update(t.Context(), lease))
	s.await(*idle, v1alpha1.VirtualMachineStopped)
	looked := -1
	for before := -2; before != looked; time.Sleep(5 * time.Second) { // until no machine is observed any more
		before, looked = looked, s.looked()
	}
	s.costs("at rest", *idle, func() { time.Sleep(*idleFor) })
}

// atRest creates a machine, a clone or one to be adopted, that is off and is to stay so.
func (s *site) atRest(name string, clone bool) (path string, vm *v1alpha1.VirtualMachine) {
	if !clone {
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
