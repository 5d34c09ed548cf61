//go:build !race

package vmpods

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/step"
)

// A machine is moved by kubectl drain, and stays where it is when its Pod is evicted from a node that is not being drained.
func TestDrain(t *testing.T) {
	v := newTraveller(t, "drain")
	v.Step("an eviction of another Pod (kubernetes#137543)", func(s step.T) {
		cordon(s, v.node(1), true)
		other := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}}
		if err := stack.client.SubResource("eviction").Create(s.Context(), v.pod, other); !apierrors.IsConflict(err) {
			t.Errorf("the eviction ends with %v", err)
		}
	})
	v.Step("a drain that is tried out (kubevirt#11532)", func(s step.T) {
		out, said, code := stack.plane.Kubectl(s.Context(), "drain", v.node(1), "--dry-run=server", "--timeout=1s")
		if code == 0 || !strings.Contains(said, "[machines-eviction/MachineIsMoved] Pod "+v.pod.Name) {
			t.Errorf("kubectl drain exits with %d and says %s%s", code, out, said)
		}
		var all v1alpha1.VirtualMachineOperationList
		s.Must(stack.client.List(s.Context(), &all, client.InNamespace(v.name)))
		if len(all.Items) > 0 {
			t.Errorf("there are the operations %+v", all.Items)
		}
		cordon(s, v.node(1), false)
	})
	v.Step("an eviction", func(s step.T) {
		err := stack.client.SubResource("eviction").Create(s.Context(), v.pod, &policyv1.Eviction{})
		if !apierrors.IsTooManyRequests(err) || apierrors.ReasonForError(err) != "MachineIsMoved" {
			t.Errorf("the eviction ends with %v", err)
		}
		if pod := v.site.pod(v.vm); pod.UID != v.pod.UID || pod.DeletionTimestamp != nil {
			t.Errorf("Pod %s is now Pod %s, deleted at %s", v.pod.Name, pod.Name, pod.DeletionTimestamp)
		}
	})
	v.Step("a drain", func(s step.T) {
		out, said, code := stack.plane.Kubectl(s.Context(), "drain", v.node(1), "--timeout=170s")
		if code != 0 || !strings.Contains(out, "drained") || !strings.Contains(said, "[machines-eviction/MachineIsMoved] Pod "+v.pod.Name) {
			t.Errorf("kubectl drain exits with %d and says %s%s", code, out, said)
		}
		v.moved(v.node(2))
	})
	v.Step("operations", func(s step.T) {
		var all v1alpha1.VirtualMachineOperationList
		s.Must(stack.client.List(s.Context(), &all, client.InNamespace(v.name)))
		if len(all.Items) != 1 || all.Items[0].Spec.Type != v1alpha1.OperationEvict || all.Items[0].Status.Phase != v1alpha1.OperationCompleted {
			t.Errorf("there are the operations %+v", all.Items)
		}
	})
	v.Step("a machine that is off", func(s step.T) {
		v.wanted(v.node(2))
		v.ends(v.operate(v.vm, "stop", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop}), false)
		_, said, code := stack.plane.Kubectl(s.Context(), "drain", v.node(2), "--timeout=1s")
		if code == 0 || !strings.Contains(said, "[machines-eviction/MachineIsOff] Pod "+v.pod.Name) {
			t.Errorf("kubectl drain exits with %d and says %s", code, said)
		}
		cordon(s, v.node(1), false)
		v.wanted(v.node(1)) // as the message says
		v.Until("the machine is on the other node", func() (string, bool) {
			status := v.look()
			settled := meta.IsStatusConditionTrue(status.Conditions, string(v1alpha1.ConditionPlacementSettled))
			return status.NodeName, settled && status.NodeName == v.node(1) && status.Phase == v1alpha1.VirtualMachineStopped
		})
		if out, said, code := stack.plane.Kubectl(s.Context(), "drain", v.node(2), "--timeout=10s"); code != 0 {
			t.Errorf("kubectl drain exits with %d and says %s%s", code, out, said)
		}
	})
}
