//go:build !race

package pods

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/step"
)

// drains is the metric of evictions that the drain reconciler has looked at.
var drains = regexp.MustCompile(`(?m)^controller_runtime_reconcile_total\{controller="drain",result="success"\} [1-9]`)

// forgeEviction sends the review of an eviction to the webhook, as every client that reaches its port can.
func forgeEviction(t step.T, pod *corev1.Pod) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"forged","operation":"CREATE","namespace":%[1]q,"name":%[2]q,
		"kind":{"group":"policy","version":"v1","kind":"Eviction"},"resource":{"group":"","version":"v1","resource":"pods"},"subResource":"eviction",
		"userInfo":{"username":"kubernetes-admin","groups":["system:masters"]},
		"object":{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"namespace":%[1]q,"name":%[2]q}}}}`, pod.Namespace, pod.Name)
	forger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a forger trusts anybody
	defer forger.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+stack.Sallyport.Webhooks()+"/validate/policies/machines-eviction", strings.NewReader(body))
	t.Must(err)
	request.Header.Set("Content-Type", "application/json")
	response, err := forger.Do(request)
	t.Must(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	t.Must(err)
	if !strings.Contains(string(answer), "MachineIsMoved") {
		t.Errorf("the forged review gets %s", answer)
	}
}

// A policy of one's own does not read Pods because machines are Pods.
func TestPodsAreNotReadForPolicies(t *testing.T) {
	p := &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "nosy"}, Spec: v1alpha1.RegoPolicySpec{
		Package: "nosy", OnError: v1alpha1.OnErrorAllow,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"virtualdisks"}, Operations: []v1alpha1.MatchOperation{v1alpha1.MatchCreate},
		}}},
		Reads: []v1alpha1.PolicyRead{{APIVersion: "v1", Kind: "Pod"}},
		Modules: []v1alpha1.PolicyModule{{Name: "nosy.rego", Source: `# METADATA
# title: Shows Pods
# description: To whom creates a disk.
package nosy

# METADATA
# title: All Pods
facts["pods"] := {"apiVersion": "v1", "kind": "Pod"}

valid_input if input.request.name

# METADATA
# title: Pods
warn contains $"{pod.metadata.name}" if some pod in input.facts.pods
`}},
		Tests: []v1alpha1.PolicyTest{{Name: "nosy_test.rego", Source: `package nosy_test

import data.nosy

test_shows if nosy.warn == {"a"} with input as {"request": {"name": "x"}, "facts": {"pods": [{"metadata": {"name": "a"}}]}}
`}},
	}}
	t.Parallel()
	stack.Up(t)
	s := step.T{T: t}
	s.Must(stack.Client.Create(s.Context(), p))
	t.Cleanup(func() { _ = stack.Client.Delete(context.Background(), p) })
	const want = "Sallyport may not get, list, watch pods for policy nosy"
	s.Until("condition ReadsGranted to name Pods", func() (string, bool) {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(p), p))
		granted := meta.FindStatusCondition(p.Status.Conditions, string(v1alpha1.ConditionReadsGranted))
		return fmt.Sprint(p.Status.Conditions), granted != nil && granted.Status == metav1.ConditionFalse && strings.Contains(granted.Message, want) &&
			strings.Contains(granted.Message, `rbac.reads={"pods":true}`)
	})
}

// A machine is moved by kubectl drain, and stays where it is when its Pod is evicted from a node that is not being drained.
func TestDrain(t *testing.T) {
	v := newTraveller(t, "drain")
	v.Step("an eviction of another Pod (kubernetes#137543)", func(s step.T) {
		cordon(s, v.node(1), true)
		other := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}}
		if err := stack.Client.SubResource("eviction").Create(s.Context(), v.pod, other); !apierrors.IsConflict(err) {
			t.Errorf("the eviction ends with %v", err)
		}
	})
	v.Step("a drain that is tried out (kubevirt#11532)", func(s step.T) {
		out, said, code := stack.Plane.Kubectl(s.Context(), "drain", v.node(1), "--dry-run=server", "--timeout=1s")
		if code == 0 || !strings.Contains(said, "[machines-eviction/MachineIsMoved] Pod "+v.pod.Name) {
			t.Errorf("kubectl drain exits with %d and says %s%s", code, out, said)
		}
		var all v1alpha1.VirtualMachineOperationList
		s.Must(stack.Client.List(s.Context(), &all, client.InNamespace(v.name)))
		if len(all.Items) > 0 {
			t.Errorf("there are the operations %+v", all.Items)
		}
	})
	v.Step("a review that no API server sent", func(s step.T) {
		forgeEviction(s, v.pod)
		s.Until("it is looked at", func() (string, bool) {
			text, err := stack.Sallyport.Metrics(s.Context())
			s.Must(err)
			done := drains.FindString(text)
			return done, done != ""
		})
		var all v1alpha1.VirtualMachineOperationList
		s.Must(stack.Client.List(s.Context(), &all, client.InNamespace(v.name)))
		if len(all.Items) > 0 {
			t.Errorf("a cordon and a review that anybody can forge make the operations %+v", all.Items)
		}
		cordon(s, v.node(1), false)
		for _, n := range []int{1, 2} {
			label := []byte(`{"metadata":{"labels":{"` + v1alpha1.LabelDrain + `":"` + v1alpha1.DrainEnabled + `"}}}`)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v.node(n)}}
			s.Must(stack.Client.Patch(s.Context(), node, client.RawPatch(types.MergePatchType, label)))
		}
	})
	v.Step("an eviction", func(s step.T) {
		err := stack.Client.SubResource("eviction").Create(s.Context(), v.pod, &policyv1.Eviction{})
		if !apierrors.IsTooManyRequests(err) || apierrors.ReasonForError(err) != "MachineIsMoved" {
			t.Errorf("the eviction ends with %v", err)
		}
		if pod := v.site.pod(v.vm); pod.UID != v.pod.UID || pod.DeletionTimestamp != nil {
			t.Errorf("Pod %s is now Pod %s, deleted at %s", v.pod.Name, pod.Name, pod.DeletionTimestamp)
		}
	})
	v.Step("a drain", func(s step.T) {
		out, said, code := stack.Plane.Kubectl(s.Context(), "drain", v.node(1), "--timeout=170s")
		if code != 0 || !strings.Contains(out, "drained") || !strings.Contains(said, "[machines-eviction/MachineIsMoved] Pod "+v.pod.Name) {
			t.Errorf("kubectl drain exits with %d and says %s%s", code, out, said)
		}
		v.moved(v.node(2))
	})
	v.Step("operations", func(s step.T) {
		var all v1alpha1.VirtualMachineOperationList
		s.Must(stack.Client.List(s.Context(), &all, client.InNamespace(v.name)))
		if len(all.Items) != 1 || all.Items[0].Spec.Type != v1alpha1.OperationEvict || all.Items[0].Status.Phase != v1alpha1.OperationCompleted {
			t.Errorf("there are the operations %+v", all.Items)
		}
	})
	v.Step("a machine that is off", func(s step.T) {
		v.wanted(v.node(2))
		v.ends(v.operate(v.vm, "stop", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop}), false)
		_, said, code := stack.Plane.Kubectl(s.Context(), "drain", v.node(2), "--timeout=1s")
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
		if out, said, code := stack.Plane.Kubectl(s.Context(), "drain", v.node(2), "--timeout=10s"); code != 0 {
			t.Errorf("kubectl drain exits with %d and says %s%s", code, out, said)
		}
	})
}
