//go:build !race

package vcenter

import (
	"flag"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

var fleet = flag.Int("fleet", 0, "measure what so many machines cost that are made at once, by TestFleet")

// A fleet is made at once, stopped, started and removed. What that costs is logged, and not held against anything:
//
//	go test ./test/vcenter -run TestFleet -fleet 500 -timeout 1h -v
func TestFleet(t *testing.T) {
	if *fleet == 0 {
		t.Skip("it is only measured when it is asked for: -fleet 500")
	}
	s := maker(t)
	measures := map[string]func() int{
		"requests to the vCenter":        s.vcenter.Requests,
		"reads of the API server":        func() int { return s.metric("rest_client_requests_total", `method="GET"`) },
		"writes to the API server":       func() int { return s.metric("rest_client_requests_total", `method="P`) },
		"resident memory of the manager": func() int { return s.metric("process_resident_memory_bytes", "") },
		"reconciles of machines":         func() int { return s.metric("controller_runtime_reconcile_total", `controller="virtualmachine"`) },
	}
	chapter := func(name string, do func(i int), done func(*v1alpha1.VirtualMachine) bool) {
		t.Helper()
		began, before := time.Now(), map[string]int{}
		for what, measure := range measures {
			before[what] = measure()
		}
		for i := range *fleet {
			do(i)
		}
		s.fleetIs(*fleet, done)
		t.Logf("%s: %d machines in %s", name, *fleet, time.Since(began).Round(time.Millisecond))
		for what, measure := range measures {
			after := measure()
			t.Logf("  %s: %d, %.1f a machine (%d in all)", what, after-before[what], float64(after-before[what])/float64(*fleet), after)
		}
	}
	is := func(phase v1alpha1.VirtualMachinePhase) func(*v1alpha1.VirtualMachine) bool {
		return func(vm *v1alpha1.VirtualMachine) bool { return vm.Status.Phase == phase && !vm.Busy() }
	}
	name := func(i int) string { return fmt.Sprintf("fleet-%d", i) }
	ask := func(what v1alpha1.OperationType) func(i int) {
		return func(i int) {
			s.patiently(func() error {
				return stack.client.Create(s.Context(), &v1alpha1.VirtualMachineOperation{
					ObjectMeta: metav1.ObjectMeta{Namespace: s.name, GenerateName: name(i) + "-"},
					Spec:       v1alpha1.VirtualMachineOperationSpec{Type: what, VirtualMachineName: name(i)},
				})
			})
		}
	}
	chapter("made, and powered on", func(i int) {
		vm := s.made()
		vm.Name = name(i)
		s.adopt(vm)
	}, is(v1alpha1.VirtualMachineRunning))
	chapter("stopped", ask(v1alpha1.OperationStop), is(v1alpha1.VirtualMachineStopped))
	chapter("started", ask(v1alpha1.OperationStart), is(v1alpha1.VirtualMachineRunning))
	for i := range *fleet {
		vm := s.made()
		vm.Name = name(i)
		s.Must(client.IgnoreNotFound(stack.client.Delete(s.Context(), vm)))
	}
	s.fleetIs(0, func(*v1alpha1.VirtualMachine) bool { return true })
	if left := s.vcenter.Machines(); len(left) != 1 { // which is the template
		t.Errorf("vCenter has %v", left)
	}
}

// patience is how long a machine of a fleet may take, and so many times as long all of them.
const patience = 30 * time.Second

// fleetIs waits until so many machines of the site are like that.
func (s *site) fleetIs(many int, like func(*v1alpha1.VirtualMachine) bool) {
	s.Helper()
	began := time.Now()
	for n := -1; n != many; time.Sleep(100 * time.Millisecond) {
		n = 0
		var other *v1alpha1.VirtualMachine
		for _, vm := range s.machines() {
			switch {
			case vm.Namespace != s.name:
			case like(&vm):
				n++
			default:
				other = &vm
			}
		}
		if time.Since(began) > patience*time.Duration(*fleet) {
			s.Fatalf("%d machines are not like that, among them %+v", *fleet-n, other)
		}
	}
}
