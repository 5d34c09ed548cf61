//go:build kubevirt

package kubevirt

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/env/install"
)

// TestFailover has two managers, and kills the one that leads while operations are in progress on machines. The other completes them, and
// does nothing twice.
func TestFailover(t *testing.T) {
	s := newSite(t)
	managers := s.managers("sallyport-a", "sallyport-b")
	namespace := s.namespace()
	type row struct {
		kind   v1alpha1.OperationType
		force  bool
		off    bool // before
		boots  int
		leaves v1alpha1.VirtualMachinePhase
	}
	rows := map[string]row{
		"start":         {kind: v1alpha1.OperationStart, off: true, boots: 1, leaves: v1alpha1.VirtualMachineRunning},
		"stop":          {kind: v1alpha1.OperationStop, boots: 1, leaves: v1alpha1.VirtualMachineStopped},
		"stop-force":    {kind: v1alpha1.OperationStop, force: true, boots: 1, leaves: v1alpha1.VirtualMachineStopped},
		"restart":       {kind: v1alpha1.OperationRestart, boots: 2, leaves: v1alpha1.VirtualMachineRunning},
		"restart-force": {kind: v1alpha1.OperationRestart, force: true, boots: 2, leaves: v1alpha1.VirtualMachineRunning},
		"migrate":       {kind: v1alpha1.OperationMigrate, boots: 1, leaves: v1alpha1.VirtualMachineRunning},
		"evict":         {kind: v1alpha1.OperationEvict, boots: 1, leaves: v1alpha1.VirtualMachineRunning},
	}
	machines, operations, releases := map[string]*v1alpha1.VirtualMachine{}, map[string]*v1alpha1.VirtualMachineOperation{}, []func(){}
	for name, r := range rows {
		spec := machine(namespace, name, true).Spec
		spec.RunPolicy = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually
		if r.off {
			spec.RunPolicy = v1alpha1.RunPolicyManual
		}
		machines[name] = s.virtualMachine(namespace, name, spec)
	}
	for name, r := range rows {
		vm, phase := machines[name], v1alpha1.VirtualMachineRunning
		if r.off {
			phase = v1alpha1.VirtualMachineStopped
		}
		s.shows(vm, phase)
		releases = append(releases, s.hang(client.ObjectKeyFromObject(vm), r.kind, r.force))
		op := &v1alpha1.VirtualMachineOperation{Spec: v1alpha1.VirtualMachineOperationSpec{Type: r.kind, Force: r.force, VirtualMachineName: name}}
		if op.Namespace, op.Name = namespace, name; r.kind == v1alpha1.OperationMigrate {
			op.Spec.Migrate = &v1alpha1.MigrateTarget{NodeName: map[string]string{"node-1": "node-2", "node-2": "node-1"}[vm.Status.NodeName]}
		}
		s.Must(s.Create(s.Context(), op))
		operations[name] = op
	}
	for name, op := range operations {
		s.Until("operation "+name+" is in progress", func() (string, bool) {
			s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
			return fmt.Sprintf("%+v", op.Status), op.Status.Phase == v1alpha1.OperationInProgress
		})
	}
	s.kill(managers)
	for _, release := range releases {
		release()
	}
	for name, r := range rows {
		op, vm := operations[name], machines[name]
		s.Until("operation "+name+" has succeeded", func() (string, bool) {
			s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
			return fmt.Sprintf("%+v", op.Status), op.Status.Phase == v1alpha1.OperationCompleted
		})
		s.shows(vm, r.leaves)
		if got := s.Agent.Boots(types.NamespacedName{Namespace: namespace, Name: name}); got != r.boots {
			s.Errorf(depth.Effect+"%s: %d instances have booted, not %d", name, got, r.boots)
		}
	}
}

// managers starts managers behind one Service. Their lease is short.
func (s *site) managers(names ...string) (all []*install.Manager) {
	s.Helper()
	ctx := context.WithoutCancel(s.Context())
	binary, err := install.Build(ctx, s.folder, "sallyport.dev/sallyport/cmd/sallyport")
	s.Must(err)
	sallyport, err := install.Prepare(ctx, s.Plane)
	s.Must(err)
	var logs install.Log
	options := install.Options{Binary: binary, Logs: &logs, Flags: []string{
		"--decision-records", "off", "--lease-duration", "6s", "--renew-deadline", "4s", "--runtime-call-timeout", "2s", "--retry-period", "500ms",
	}}
	var backends []install.Backend
	for i, name := range names {
		m, err := sallyport.Manager(options, name, install.Ports{Webhook: 9444 + i, Metrics: 8082 + 2*i, Health: 8083 + 2*i})
		s.Must(err)
		all, backends = append(all, m), append(backends, m.Backend())
	}
	s.Cleanup(func() {
		for _, m := range all {
			_ = m.Kill()
		}
		if s.Must(sallyport.Remove()); s.Failed() {
			s.Logf("the end of the logs of sallyport:\n%s", install.Tail(logs.String(), 60))
		}
	})
	for _, m := range all {
		s.Must(m.AwaitReady(ctx))
	}
	balancer, err := install.NewBalancer(net.JoinHostPort(sallyport.Address, strconv.Itoa(install.Port)), backends...)
	s.Must(err)
	s.Cleanup(func() { _ = balancer.Close() })
	s.Must(sallyport.AwaitJudgement(ctx))
	return all
}

// kill kills the manager that leads.
func (s *site) kill(managers []*install.Manager) {
	s.Helper()
	s.Eventually("a manager leads and is killed", func() bool {
		for _, m := range managers {
			metrics, err := m.Metrics(s.Context())
			if err == nil && strings.Contains(metrics, "leader_election_master_status{name=\"sallyport-manager\"} 1\n") {
				s.Must(m.Kill())
				return true
			}
		}
		return false
	})
}
