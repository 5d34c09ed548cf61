//go:build kubevirt

package kubevirt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/test/support/env/install"
)

// TestProgram has the shipped program, with the rights of its chart, run machines.
func TestProgram(t *testing.T) {
	s := newSite(t)
	s.release(nil)
	namespace := s.namespace()
	t.Run("created", func(t *testing.T) { s.in(t).created(namespace) })
	t.Run("adopted", func(t *testing.T) { s.in(t).adopted(namespace) })
	t.Run("guarded", func(t *testing.T) { s.in(t).guarded(namespace) })
	t.Run("shrunk", func(t *testing.T) { s.in(t).shrunk(namespace) })
	t.Run("rights", func(t *testing.T) { s.in(t).rights(namespace) })
	t.Run("templated", func(t *testing.T) { s.in(t).templated(namespace) })
	t.Run("waiting", func(t *testing.T) { s.in(t).waiting(namespace) })
	t.Run("started by others", func(t *testing.T) { s.in(t).startedByOthers(namespace) })
}

// release installs and starts the shipped program. replace kills it, and starts it again.
func (s *site) release(values []string, flags ...string) (replace func()) {
	s.Helper()
	ctx := context.WithoutCancel(s.Context())
	binary, err := install.Build(ctx, s.folder, "sallyport.dev/sallyport/cmd/sallyport")
	s.Must(err)
	logs, err := os.Create(filepath.Join(s.folder, "sallyport.log"))
	s.Must(err)
	options := install.Options{Binary: binary, Logs: logs, Flags: flags, Values: append([]string{ // runtimes.kubevirt.enabled is auto
		"policies.kubevirt-machines.enabled=true", "policies.kubevirt-definitions.enabled=true", "policies.kubevirt-pools.enabled=true",
	}, values...)}
	release, err := install.Start(ctx, s.Plane, options)
	s.Must(err)
	s.Cleanup(func() {
		s.Must(release.Remove())
		if text, _ := os.ReadFile(logs.Name()); s.Failed() {
			s.Logf("the end of the log of sallyport:\n%s", text[max(0, len(text)-6000):])
		}
		_ = logs.Close()
	})
	return func() {
		s.Must(release.Kill())
		s.Must(release.Resume(ctx, options))
	}
}

// created is the life of a machine that is created.
func (s *site) created(namespace string) {
	vm := s.virtualMachine(namespace, "web", machine(namespace, "web", true).Spec)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	first := vm.Status.Incarnation
	s.operate(vm, "restart", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationRestart})
	if s.shows(vm, v1alpha1.VirtualMachineRunning); vm.Status.Incarnation == first {
		s.Errorf("a restart left the incarnation %s", first)
	}
	other := map[string]string{"node-1": "node-2", "node-2": "node-1"}[vm.Status.NodeName]
	s.operate(vm, "migrate", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationMigrate, Migrate: &v1alpha1.MigrateTarget{NodeName: other}})
	if s.shows(vm, v1alpha1.VirtualMachineRunning); vm.Status.NodeName != other {
		s.Errorf("the machine was moved to %s and is on %s", other, vm.Status.NodeName)
	}
	s.Agent.Ignore(client.ObjectKeyFromObject(vm), true)
	s.operate(vm, "stop", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop, Force: true})
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	s.gone(&virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}})
}

// adopted is the life of a machine that is adopted while it is on. The run policy undoes what no policy has seen.
func (s *site) adopted(namespace string) {
	theirs := foreignVM(namespace, "db")
	theirs.Spec.RunStrategy = new(virtv1.RunStrategyAlways)
	s.Must(s.Create(s.Context(), theirs))
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}}
	s.Eventually("the instance runs", func() bool {
		return s.Get(s.Context(), client.ObjectKeyFromObject(vmi), vmi) == nil && vmi.Status.Phase == virtv1.Running
	})
	vm := s.virtualMachine(namespace, "adopted", &v1alpha1.VirtualMachineSpec{
		RunPolicy: v1alpha1.RunPolicyAlwaysOn,
		Runtime:   v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Name: "db"}},
	})
	if s.shows(vm, v1alpha1.VirtualMachineRunning); vm.Status.Incarnation != string(vmi.UID) {
		s.Errorf("instance %s was adopted as %s", vmi.UID, vm.Status.Incarnation)
	}
	subresources, err := kubevirt.NewSubresources(s.Plane.Config)
	s.Must(err)
	s.Must(subresources.Put(s.Context(), "virtualmachines", client.ObjectKeyFromObject(theirs), "stop", &virtv1.StopOptions{}))
	s.Until("the machine is started again", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == v1alpha1.VirtualMachineRunning && vm.Status.Incarnation != string(vmi.UID)
	})
	s.Until("the stop by another client is an event, once", func() (string, bool) {
		events := &eventsv1.EventList{}
		s.Must(s.List(s.Context(), events, client.InNamespace(namespace)))
		var told []string
		for i := range events.Items {
			// PowerStateDiffers instead of PowerChanged if a reconcile saw the stop before it had ended.
			if e := &events.Items[i]; strings.HasPrefix(e.Reason, "Power") && e.Regarding.UID == vm.UID {
				told = append(told, e.Note)
			}
		}
		return fmt.Sprintf("%q", told), len(told) == 1 && strings.HasPrefix(told[0], "the machine ") && strings.Contains(told[0], "is Stopped")
	})
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(theirs), theirs))
	if now, err := theirs.RunStrategy(); now != virtv1.RunStrategyAlways || err != nil || theirs.Labels[kubevirt.LabelMachine] != "" {
		s.Errorf("released with run strategy %s, %v, labels %v", now, err, theirs.Labels)
	}
}

// waiting are machines that lack something: an instance type, which KubeVirt names, and is waited for until the machine is deleted; and a
// machine to adopt.
func (s *site) waiting(namespace string) {
	spec := machine(namespace, "", true).Spec
	spec.CPU, spec.Memory = nil, nil
	spec.Runtime.KubeVirt.Create.Instancetype = &v1alpha1.KubeVirtReference{Name: "no-such"}
	vm := s.virtualMachine(namespace, "waiting", spec)
	s.Until("condition Ready has the message of KubeVirt", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		ready := v1alpha1.ConditionReady.In(vm.Status.Conditions)
		return fmt.Sprintf("%+v", vm.Status), ready != nil && strings.Contains(ready.Message, `"no-such" not found`)
	})
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	s.gone(&virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "waiting"}})
	missing := s.virtualMachine(namespace, "missing", &v1alpha1.VirtualMachineSpec{
		Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{}},
	})
	s.Until("condition Ready says that there is nothing to adopt", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(missing), missing))
		ready := v1alpha1.ConditionReady.In(missing.Status.Conditions)
		return fmt.Sprintf("%+v", missing.Status), ready != nil && ready.Reason == string(v1alpha1.ReasonInstanceNotFound)
	})
	s.Must(s.Create(s.Context(), foreignVM(namespace, "missing")))
	s.shows(missing, v1alpha1.VirtualMachineStopped)
}

func (s *site) virtualMachine(namespace, name string, spec *v1alpha1.VirtualMachineSpec) *v1alpha1.VirtualMachine {
	s.Helper()
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: *spec}
	if spec.Memory != nil {
		vm.Spec.Memory = new(resource.MustParse("64Mi"))
	}
	s.Must(s.Create(s.Context(), vm))
	return vm
}

// shows waits until a machine is in a phase, with nothing in progress.
func (s *site) shows(vm *v1alpha1.VirtualMachine, phase v1alpha1.VirtualMachinePhase) {
	s.Helper()
	s.Until("VirtualMachine "+vm.Name+" is "+string(phase), func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == phase && !vm.Busy()
	})
}

// operate creates an operation and waits until it has succeeded.
func (s *site) operate(vm *v1alpha1.VirtualMachine, name string, spec v1alpha1.VirtualMachineOperationSpec) {
	s.Helper()
	spec.VirtualMachineName = vm.Name
	op := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: name}, Spec: spec}
	s.Must(s.Create(s.Context(), op))
	s.Until("operation "+name+" has succeeded", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
		return fmt.Sprintf("%+v", op.Status), op.Status.Phase == v1alpha1.OperationCompleted
	})
}

func (s *site) gone(o client.Object) {
	s.Helper()
	s.Eventually(o.GetName()+" is gone", func() bool {
		return client.IgnoreNotFound(s.Get(s.Context(), client.ObjectKeyFromObject(o), o)) == nil && s.Get(s.Context(), client.ObjectKeyFromObject(o), o) != nil
	})
}
