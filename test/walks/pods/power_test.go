//go:build !race

package pods

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/nodeagent"
	"sallyport.dev/sallyport/test/support/step"
)

// site is a namespace of a test, with an agent that has two nodes.
type site struct {
	step.T
	name  string
	nodes *nodeagent.Agent
}

func newSite(t *testing.T, name string) *site {
	t.Helper()
	stack.Up(t)
	t.Parallel() // most of the time a machine that was just started is not started or moved again
	// An agent that sees one namespace takes no machine of another site.
	s := &site{T: step.T{T: t}, name: name, nodes: nodeagent.New(client.NewNamespacedClient(stack.Client, name), name+"-1", name+"-2")}
	s.Must(stack.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	s.Must(s.nodes.Join(t.Context()))
	s.nodes.Transport = registry.Transport()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	s.nodes.Pods, err = install.Watched(ctx, stack.Plane.Config, name)
	s.Must(err)
	var running sync.WaitGroup
	running.Go(func() { s.nodes.Run(ctx, func(err error) { t.Log(err) }) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func (s *site) create(o client.Object) {
	s.Helper()
	o.SetNamespace(s.name)
	s.Must(stack.Client.Create(s.Context(), o))
}

// operate creates an operation on a machine.
func (s *site) operate(vm *v1alpha1.VirtualMachine, name string, spec v1alpha1.VirtualMachineOperationSpec) *v1alpha1.VirtualMachineOperation {
	s.Helper()
	o := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	o.Spec.VirtualMachineName = vm.Name
	s.create(o)
	return o
}

// ends waits until an operation is complete, and says whether another has superseded it.
func (s *site) ends(o *v1alpha1.VirtualMachineOperation, superseded bool) {
	s.Helper()
	s.Until(fmt.Sprintf("operation %s is complete", o.Name), func() (string, bool) {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
		return fmt.Sprintf("%+v", o.Status), o.Status.Phase == v1alpha1.OperationCompleted && superseded == (o.Status.SupersededBy != nil)
	})
}

// shows waits until a machine is in that phase, and as its spec wants it.
func (s *site) shows(vm *v1alpha1.VirtualMachine, phase v1alpha1.VirtualMachinePhase) {
	s.Helper()
	s.Until(fmt.Sprintf("VirtualMachine %s is %s", vm.Name, phase), func() (string, bool) {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		ready := meta.IsStatusConditionTrue(vm.Status.Conditions, string(v1alpha1.ConditionReady))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == phase && ready && vm.Status.ObservedGeneration == vm.Generation
	})
}

// pod gives the Pod of a machine.
func (s *site) pod(vm *v1alpha1.VirtualMachine) *corev1.Pod {
	s.Helper()
	var pods corev1.PodList
	s.Must(stack.Client.List(s.Context(), &pods, client.InNamespace(s.name), client.MatchingLabels{agent.LabelMachine: string(vm.UID)}))
	if len(pods.Items) != 1 {
		s.Fatalf("VirtualMachine %s has %d Pods", vm.Name, len(pods.Items))
	}
	return &pods.Items[0]
}

func (s *site) gone(o client.Object) {
	s.Helper()
	s.Until(o.GetName()+" is gone", func() (string, bool) {
		err := stack.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o)
		return fmt.Sprint(o, err), apierrors.IsNotFound(err)
	})
}

// A machine that is a Pod is made, operated, changed and removed as any other.
func TestPower(t *testing.T) {
	s := newSite(t, "power")
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", Labels: map[string]string{"app": "build"}}, Spec: v1alpha1.VirtualMachineSpec{
		NodeName: "power-2", CPU: new(int32(2)), RestartApprovalMode: v1alpha1.RestartAutomatic, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{Image: "example.com/ubuntu:24.04"}},
	}}
	s.create(vm)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	pod := s.pod(vm)
	if vm.Status.NodeName != "power-2" || vm.Status.InstanceID != pod.Name || vm.Status.Incarnation == "" || pod.Labels["app"] != "build" {
		t.Errorf("the machine shows %+v, and its Pod has the labels %v", vm.Status, pod.Labels)
	}

	s.Step("a guest that does not shut down", func(step.T) {
		s.nodes.SetGuest(vm.UID, nodeagent.Guest{Ignores: true})
		graceful := s.operate(vm, "graceful", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop})
		s.Until("the guest is asked", func() (string, bool) {
			asked, err := agent.OrderOf(s.pod(vm).Annotations)
			s.Must(err)
			return string(asked.Request), asked.Request == agent.Shutdown
		})
		s.ends(s.operate(vm, "forced", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop, Force: true}), false)
		s.ends(graceful, true)
		s.shows(vm, v1alpha1.VirtualMachineStopped)
	})
	s.Step("another size", func(step.T) {
		s.nodes.SetGuest(vm.UID, nodeagent.Guest{})
		s.ends(s.operate(vm, "again", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStart}), false)
		s.resized(vm, func(spec *v1alpha1.VirtualMachineSpec) {
			spec.CPU, spec.Memory = new(int32(4)), new(resource.MustParse("8Gi"))
		}, "4", "8Gi")
	})
	s.Step("deletion", func(step.T) {
		s.Must(stack.Client.Delete(s.Context(), vm))
		s.gone(vm)
		s.gone(pod)
	})
}

// resized changes the spec of a machine that is restarted for it, and checks what its Pod requests then.
func (s *site) resized(vm *v1alpha1.VirtualMachine, change func(*v1alpha1.VirtualMachineSpec), cpu, memory string) {
	s.Helper()
	var was string
	s.Until("the spec is changed", func() (string, bool) {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		was = vm.Status.Incarnation
		change(&vm.Spec)
		err := stack.Client.Update(s.Context(), vm)
		return fmt.Sprint(err), err == nil
	})
	s.Until("the machine was restarted", func() (string, bool) {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Incarnation != was
	})
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	if has := s.pod(vm).Spec.Containers[0].Resources.Requests; has.Cpu().String() != cpu || has.Memory().String() != memory {
		s.Errorf("the Pod of %s requests %v, want %s and %s", vm.Name, has, cpu, memory)
	}
}

// A machine without a size can be given one, also where a LimitRange has filled in what its Pod lacks: only what the spec names changes. The
// real API server decides whether a Pod can be resized.
func TestSizes(t *testing.T) {
	s := newSite(t, "sizes")
	sizeless := func(name string) *v1alpha1.VirtualMachine {
		vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VirtualMachineSpec{
			RestartApprovalMode: v1alpha1.RestartAutomatic, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
		}}
		s.create(vm)
		s.shows(vm, v1alpha1.VirtualMachineRunning)
		return vm
	}
	vm := sizeless("plain")
	s.resized(vm, func(spec *v1alpha1.VirtualMachineSpec) {
		spec.CPU, spec.Memory = new(int32(2)), new(resource.MustParse("4Gi"))
	}, "2", "4Gi")
	s.resized(vm, func(spec *v1alpha1.VirtualMachineSpec) { spec.CPU, spec.Memory = nil, new(resource.MustParse("8Gi")) }, "2", "8Gi")

	s.create(&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type:           corev1.LimitTypeContainer,
		DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		Default:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("16Gi")},
	}}}})
	var limited *v1alpha1.VirtualMachine
	for i := 0; ; i++ { // the API server may not know the LimitRange yet
		limited = sizeless(fmt.Sprintf("limited-%d", i))
		if len(s.pod(limited).Spec.Containers[0].Resources.Limits) > 0 {
			break
		}
	}
	s.resized(limited, func(spec *v1alpha1.VirtualMachineSpec) { spec.CPU = new(int32(2)) }, "2", "128Mi")
}

// Who deletes a Pod deletes a machine, which is not made again unasked. A VirtualMachine whose Pod no node takes says why, and can go.
func TestPodsAreLost(t *testing.T) {
	s := newSite(t, "lost")
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: v1alpha1.VirtualMachineSpec{
		Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
	}}
	s.create(vm)
	s.shows(vm, v1alpha1.VirtualMachineRunning)
	s.Must(stack.Client.Delete(t.Context(), s.pod(vm)))
	s.Until("the machine is lost", func() (string, bool) {
		s.Must(stack.Client.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
		ready := meta.FindStatusCondition(vm.Status.Conditions, string(v1alpha1.ConditionReady))
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == v1alpha1.VirtualMachineFailed && ready.Reason == string(v1alpha1.ReasonInstanceLost)
	})
	s.Must(stack.Client.Delete(t.Context(), vm))
	s.gone(vm)

	vm = &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}, Spec: v1alpha1.VirtualMachineSpec{
		NodeName: "no-such-node", Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
	}}
	s.create(vm)
	var pods corev1.PodList
	s.Until("there is a Pod", func() (string, bool) {
		s.Must(stack.Client.List(t.Context(), &pods, client.InNamespace(s.name), client.MatchingLabels{agent.LabelMachine: string(vm.UID)}))
		return "", len(pods.Items) == 1
	})
	s.Until("the reason is shown", func() (string, bool) {
		s.Must(stack.Client.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
		ready := meta.FindStatusCondition(vm.Status.Conditions, string(v1alpha1.ConditionReady))
		want := fmt.Sprintf("no node takes Pod %s: 0/2 nodes are available: ", pods.Items[0].Name)
		return fmt.Sprintf("%+v", vm.Status), ready != nil && ready.Status == metav1.ConditionFalse && strings.HasPrefix(ready.Message, want)
	})
	s.Must(stack.Client.Delete(t.Context(), vm))
	s.gone(vm)
}
