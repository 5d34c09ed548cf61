package pod

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// grace is how many seconds the agent of a deleted Pod has to remove the machine. With 0 the API server removes the
// Pod at once, and virtual kubelets leave the machine behind.
const grace = 30

// maxName is the maximum length of a Pod's name.
const maxName = 253

// nameOf returns the name of the machine's Pod: the one created by its move, or the recorded one, or the first one.
// It contains the UID, so that a recreated machine neither waits for nor is confused with leftovers of the previous
// one. A move creates a Pod with another name, so that clients which track a Pod by name, such as kubectl drain, see
// that it is gone.
func nameOf(m runtime.Machine) string {
	id := "-" + strings.ToLower(string(m.UID))
	switch move := m.Migration; {
	case move != nil && move.Step == v1alpha1.MigrationRestore:
		id += "-" + strings.ToLower(string(move.ID[:min(len(move.ID), 8)]))
	case m.InstanceID != "":
		return m.InstanceID
	}
	return strings.TrimRight(m.Name[:min(len(m.Name), maxName-len(id))], "-.") + id
}

// podOf returns the Pod of the machine, on the nodes of the affinity and the labels, in addition to those of the spec.
func (r *Runtime) podOf(m runtime.Machine, affinity *corev1.Affinity, nodes map[string]v1alpha1.LabelValue) (*corev1.Pod, error) {
	template, err := templateOf(m)
	if err != nil {
		return nil, err
	}
	labels := r.Uncopied.Rest(m.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[agent.LabelMachine] = string(m.UID)
	image := m.Spec.Runtime.Pod.Image
	if image == "" {
		image = agent.DefaultImage
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: nameOf(m), Labels: labels, OwnerReferences: ownedBy(m),
			Annotations: map[string]string{agent.AnnotationRound: "0", agent.AnnotationRequest: string(agent.None)},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: agent.Container, Image: image, Resources: corev1.ResourceRequirements{Requests: firstRequests(m)},
			}},
			NodeSelector:                  r.nodeSelector(template.Spec.NodeSelector, nodes, m.Spec.NodeSelector),
			Affinity:                      template.onNodes(affinity),
			ImagePullSecrets:              pullSecrets(m),
			Tolerations:                   tolerations(),
			TerminationGracePeriodSeconds: new(int64(grace)),
			// A guest needs no access to the API server.
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
		},
	}
	template.fill(pod)
	return pod, nil
}

// machineIn returns the container of the machine. Mutating webhooks of others may have put containers before it.
func machineIn(pod *corev1.Pod) *corev1.Container {
	all := pod.Spec.Containers
	return &all[max(slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == agent.Container }), 0)]
}

// noSize is the CPU request of a machine without a size.
var noSize = resource.MustParse("1m")

// firstRequests returns the requests with which a Pod is created: never none, and limits only where the template has some, so that its
// quality of service is Burstable. It cannot change later, so a Pod without requests could not be given a size.
func firstRequests(m runtime.Machine) corev1.ResourceList {
	list := requests(m)
	if len(list) == 0 {
		list[corev1.ResourceCPU] = noSize
	}
	return list
}

// requests returns the resource requests for the size in the spec.
func requests(m runtime.Machine) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu := m.Spec.CPU; cpu != nil {
		list[corev1.ResourceCPU] = *resource.NewQuantity(int64(*cpu), resource.DecimalSI)
	}
	if memory := m.Spec.Memory; memory != nil {
		list[corev1.ResourceMemory] = *memory
	}
	return list
}

// nodeSelector returns a selector with all those labels and those of NodeSelector, which users cannot override.
func (r *Runtime) nodeSelector(template map[string]string, lists ...map[string]v1alpha1.LabelValue) map[string]string {
	selector := map[string]string{}
	maps.Copy(selector, template)
	for _, labels := range lists {
		for key, value := range labels {
			selector[key] = string(value)
		}
	}
	maps.Copy(selector, r.NodeSelector)
	return selector
}

// pullSecrets returns the Secret with which the agent reads and writes the machine's snapshots.
func pullSecrets(m runtime.Machine) []corev1.LocalObjectReference {
	if ref := m.Spec.Runtime.Pod.SnapshotSecretRef; ref != nil {
		return []corev1.LocalObjectReference{{Name: ref.Name}}
	}
	return nil
}

// onNode requires the node of that name, or any other. It matches the node's name and not the hostname label, which
// can differ. The scheduler still decides, so that cordons and free resources count.
func onNode(op corev1.NodeSelectorOperator, name string) *corev1.Affinity {
	if name == "" {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{byName(op, name)},
	}}}
}

func atBest(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: 100, Preference: byName(corev1.NodeSelectorOpIn, name)},
	}}}
}

func byName(op corev1.NodeSelectorOperator, name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: op, Values: []string{name}},
	}}
}

// tolerations returns tolerations for virtual kubelets and, without a limit, for unreachable nodes: by default Pods
// are deleted after five minutes, and with them machines that may well be running.
func tolerations() []corev1.Toleration {
	return []corev1.Toleration{
		{Key: "virtual-kubelet.io/provider", Operator: corev1.TolerationOpExists},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	}
}
