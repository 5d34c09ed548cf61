package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// schedule has one of the nodes take the Pod, that which it prefers if it can, or says in the Pod why none does.
func (a *Agent) schedule(ctx context.Context, pod *corev1.Pod) error {
	var why []string
	var fit []string
	for _, name := range a.nodes {
		reason, err := a.unfit(ctx, pod, name)
		if err != nil {
			return err
		}
		if reason == "" {
			fit = append(fit, name)
		} else {
			why = append(why, name+" "+reason)
		}
	}
	if len(fit) == 0 {
		return a.unschedulable(ctx, pod, fmt.Sprintf("0/%d nodes are available: %s", len(a.nodes), strings.Join(why, ", ")))
	}
	to := fit[0]
	if at := slices.IndexFunc(fit, func(name string) bool { return prefers(pod, name) }); at > 0 {
		to = fit[at]
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: to},
	}
	if err := a.client.SubResource("binding").Create(ctx, pod, binding); err != nil {
		return fmt.Errorf("binding Pod %s: %w", pod.Name, err)
	}
	return nil
}

// unfit says why the Pod cannot go to a node. What only its Node would tell counts if there is one.
func (a *Agent) unfit(ctx context.Context, pod *corev1.Pod, name string) (why string, err error) {
	if !requires(pod, name) {
		return "is not one that the Pod's affinity wants", nil
	}
	if a.isDead(name) {
		return "is not ready", nil
	}
	node := &corev1.Node{}
	switch err := a.client.Get(ctx, types.NamespacedName{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading Node %s: %w", name, err)
	case node.Spec.Unschedulable:
		return "is cordoned", nil
	case !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)):
		return "does not have the labels of the Pod's node selector", nil
	}
	return "", nil
}

// unschedulable says in the Pod that no node takes it.
func (a *Agent) unschedulable(ctx context.Context, pod *corev1.Pod, message string) error {
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}
	said := func(c corev1.PodCondition) bool { return c.Type == condition.Type }
	changed := pod.DeepCopy()
	if at := slices.IndexFunc(pod.Status.Conditions, said); at >= 0 && pod.Status.Conditions[at].Message == message {
		return nil
	}
	changed.Status.Conditions = append(slices.DeleteFunc(changed.Status.Conditions, said), condition)
	if err := a.client.Status().Patch(ctx, changed, client.MergeFrom(pod)); err != nil {
		return fmt.Errorf("saying that no node takes Pod %s: %w", pod.Name, err)
	}
	return nil
}

// nodeAffinity is never nil.
func nodeAffinity(pod *corev1.Pod) *corev1.NodeAffinity {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return &corev1.NodeAffinity{}
	}
	return pod.Spec.Affinity.NodeAffinity
}

func requires(pod *corev1.Pod, node string) bool {
	required := nodeAffinity(pod).RequiredDuringSchedulingIgnoredDuringExecution
	return required == nil || slices.ContainsFunc(required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return matches(t, node) })
}

func prefers(pod *corev1.Pod, node string) bool {
	return slices.ContainsFunc(nodeAffinity(pod).PreferredDuringSchedulingIgnoredDuringExecution,
		func(t corev1.PreferredSchedulingTerm) bool { return matches(t.Preference, node) })
}

// matches tells whether a term, which is about names only, is true of a node.
func matches(term corev1.NodeSelectorTerm, node string) bool {
	return !slices.ContainsFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
		return slices.Contains(r.Values, node) != (r.Operator == corev1.NodeSelectorOpIn)
	})
}

// Labels are those of the Nodes that the agent makes.
var Labels = map[string]string{"type": "virtual-kubelet"}

// taint keeps other Pods off the Nodes, as virtual kubelets do.
var taint = corev1.Taint{Key: "virtual-kubelet.io/provider", Value: "nodeagent", Effect: corev1.TaintEffectNoSchedule}

// Join makes the Nodes of the agent, with room for any machine.
func (a *Agent) Join(ctx context.Context) error {
	for _, name := range a.nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: Labels}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}}
		if err := a.client.Create(ctx, n); err != nil {
			return fmt.Errorf("making Node %s: %w", name, err)
		}
		was := n.DeepCopy()
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110")}
		n.Status.Capacity = n.Status.Allocatable
		if err := a.client.Status().Patch(ctx, n, client.MergeFrom(was)); err != nil {
			return fmt.Errorf("saying what room Node %s has: %w", name, err)
		}
	}
	return nil
}

// beat has the Nodes of the agent, if there are any, say whether they are ready.
func (a *Agent) beat(ctx context.Context) error {
	var errs []error
	for _, name := range a.nodes {
		dead := a.isDead(name)
		if told, is := a.told[name]; is && told == dead {
			continue
		}
		if err := a.tell(ctx, name, dead); err == nil {
			a.told[name] = dead
		} else if !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("saying whether Node %s is ready: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (a *Agent) tell(ctx context.Context, name string, dead bool) error {
	node := &corev1.Node{}
	if err := a.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return err
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
	if dead {
		ready.Status, ready.Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
	}
	changed := node.DeepCopy()
	changed.Status.Conditions = append(slices.DeleteFunc(changed.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == ready.Type }), ready)
	return a.client.Status().Patch(ctx, changed, client.MergeFrom(node))
}
