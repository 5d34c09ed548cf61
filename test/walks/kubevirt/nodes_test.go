//go:build kubevirt

package kubevirt

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// TestNodes has nodes that do nothing for a while, die, or say what is not so.
func TestNodes(t *testing.T) {
	s := newSite(t)
	s.release(nil, "--poll-interval", "1s")
	namespace := s.namespace()
	t.Run("stalled", func(t *testing.T) { s.in(t).stalledNode(namespace) })
	t.Run("lying", func(t *testing.T) { s.in(t).lyingNode(namespace) })
	t.Run("dead", func(t *testing.T) { s.in(t).deadNode(namespace) })
}

// stalledNode is a node that does nothing for a Start at first. It is carried out once.
func (s *site) stalledNode(namespace string) {
	spec := machine(namespace, "", true).Spec
	spec.RunPolicy = v1alpha1.RunPolicyManual
	vm := s.virtualMachine(namespace, "stalled", spec)
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	key := client.ObjectKeyFromObject(vm)
	s.Agent.Stall(key, true)
	op := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stalled-start"}}
	op.Spec.Type, op.Spec.VirtualMachineName = v1alpha1.OperationStart, vm.Name
	s.Must(s.Create(s.Context(), op))
	s.Until("the machine is starting", func() (string, bool) {
		s.Must(s.Get(s.Context(), key, vm))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == v1alpha1.VirtualMachineStarting && vm.Busy()
	})
	s.Agent.Stall(key, false)
	s.Until("the operation has succeeded", func() (string, bool) {
		s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
		return fmt.Sprintf("%+v", op.Status), op.Finished()
	})
	if s.shows(vm, v1alpha1.VirtualMachineRunning); s.Agent.Boots(key) != 1 {
		s.Errorf("%d instances have booted", s.Agent.Boots(key))
	}
}

// lyingNode is a node that says that a guest has moved to where it has no Pod. For KubeVirt the instance has failed then, and the run policy
// starts the machine again, once.
func (s *site) lyingNode(namespace string) {
	spec := machine(namespace, "", true).Spec
	spec.RunPolicy = v1alpha1.RunPolicyAlwaysOn
	vm := s.virtualMachine(namespace, "lying", spec)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	key, first := client.ObjectKeyFromObject(vm), vm.Status.Incarnation
	s.Must(s.Agent.Edit(s.Context(), key, func(vmi *virtv1.VirtualMachineInstance) {
		vmi.Status.NodeName = "node-of-old"
	}))
	s.Until("the run policy has started it again", func() (string, bool) {
		s.Must(s.Get(s.Context(), key, vm))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == v1alpha1.VirtualMachineRunning && vm.Status.Incarnation != first && !vm.Busy()
	})
	if s.Agent.Boots(key) != 2 {
		s.Errorf("%d instances have booted", s.Agent.Boots(key))
	}
}

// deadNode is a node that is not heard of. Its machine does not start elsewhere before its Pod is gone, as when the node is deleted.
func (s *site) deadNode(namespace string) {
	spec := machine(namespace, "", true).Spec
	spec.RunPolicy = v1alpha1.RunPolicyAlwaysOn
	vm := s.virtualMachine(namespace, "dead", spec)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	key, node, first := client.ObjectKeyFromObject(vm), vm.Status.NodeName, vm.Status.Incarnation
	s.Agent.Stall(key, true)
	s.Must(s.Agent.SetNodeReady(s.Context(), node, false))
	s.Until("Ready names the node", func() (string, bool) {
		s.Must(s.Get(s.Context(), key, vm))
		ready := v1alpha1.ConditionReady.In(vm.Status.Conditions)
		return fmt.Sprintf("%+v", vm.Status), ready.Status == metav1.ConditionUnknown && ready.Reason == string(v1alpha1.ReasonDisconnected) && strings.Contains(ready.Message, node)
	})
	op := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dead-restart"}}
	op.Spec.Type, op.Spec.Force, op.Spec.VirtualMachineName = v1alpha1.OperationRestart, true, vm.Name
	if err := s.Create(s.Context(), op); err == nil {
		s.Until("the operation says why it waits", func() (string, bool) {
			s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(op), op))
			text := fmt.Sprintf("%+v", op.Status)
			return text, !op.Finished() && strings.Contains(text, node)
		})
	} else if !strings.Contains(err.Error(), node) && !strings.Contains(err.Error(), "Degraded") {
		s.Errorf("the denial does not say why: %v", err)
	}
	if s.Agent.Boots(key) != 1 {
		s.Errorf("%d instances have booted", s.Agent.Boots(key))
	}
	s.Must(s.DeleteAllOf(s.Context(), &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0),
		client.MatchingLabels{virtv1.AppLabel: "virt-launcher", virtv1.CreatedByLabel: first}))
	s.Agent.Stall(key, false)
	s.Until("the machine runs on another node", func() (string, bool) {
		s.Must(s.Get(s.Context(), key, vm))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == v1alpha1.VirtualMachineRunning && vm.Status.NodeName != node && !vm.Busy()
	})
	if s.Agent.Boots(key) != 2 {
		s.Errorf("%d instances have booted", s.Agent.Boots(key))
	}
	s.Must(s.Agent.SetNodeReady(s.Context(), node, true))
}
