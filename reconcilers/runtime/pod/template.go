package pod

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/json"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const templateField = "spec.runtime.pod.template"

// template are the fields of a Pod that a VirtualMachine may set. Users who may create VirtualMachines need not be allowed to create Pods, so
// there is none that gives a Pod more than it has without it: no volumes, no ServiceAccount, nothing of the host, no privileges.
type template struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		SecurityContext   *podSecurity        `json:"securityContext"`
		Tolerations       []corev1.Toleration `json:"tolerations"`
		PriorityClassName string              `json:"priorityClassName"`
		NodeSelector      map[string]string   `json:"nodeSelector"`
		Affinity          *corev1.Affinity    `json:"affinity"`
		Containers        []container         `json:"containers"`
	} `json:"spec"`
}

type container struct {
	Name      string `json:"name"`
	Resources struct {
		Limits struct {
			CPU    *amount `json:"cpu"`
			Memory *amount `json:"memory"`
		} `json:"limits"`
	} `json:"resources"`
	SecurityContext *security `json:"securityContext"`
}

// amount is a quantity in a simple notation: to decode 1e-999999999 would take hours.
type amount struct{ resource.Quantity }

var simple = regexp.MustCompile(`^"?[0-9]{1,12}(\.[0-9]{1,3})?(m|[kMGT]|[KMGT]i)?"?$`)

// UnmarshalJSON decodes a quantity in a simple notation.
func (a *amount) UnmarshalJSON(text []byte) error {
	if !simple.Match(text) {
		return errors.New("a limit must be a quantity such as 4, 500m or 8Gi")
	}
	return a.Quantity.UnmarshalJSON(text)
}

type podSecurity struct {
	RunAsUser           *int64                         `json:"runAsUser"`
	RunAsGroup          *int64                         `json:"runAsGroup"`
	RunAsNonRoot        *bool                          `json:"runAsNonRoot"`
	SupplementalGroups  []int64                        `json:"supplementalGroups"`
	FSGroup             *int64                         `json:"fsGroup"`
	FSGroupChangePolicy *corev1.PodFSGroupChangePolicy `json:"fsGroupChangePolicy"`
	SeccompProfile      *corev1.SeccompProfile         `json:"seccompProfile"`
}

type security struct {
	RunAsUser                *int64                 `json:"runAsUser"`
	RunAsGroup               *int64                 `json:"runAsGroup"`
	RunAsNonRoot             *bool                  `json:"runAsNonRoot"`
	AllowPrivilegeEscalation *bool                  `json:"allowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   *bool                  `json:"readOnlyRootFilesystem"`
	SeccompProfile           *corev1.SeccompProfile `json:"seccompProfile"`
	Capabilities             *struct {
		Drop []corev1.Capability `json:"drop"`
	} `json:"capabilities"`
}

// templateOf returns the template of the spec. A field that cannot be set is an InvalidSpec error that names it.
func templateOf(m runtime.Machine) (*template, error) {
	t := &template{}
	given := m.Spec.Runtime.Pod.Template
	if given == nil {
		return t, nil
	}
	strict, err := json.UnmarshalStrict(given.Raw, t)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, runtime.NewInvalidSpec(err, "%s: %s", templateField, strings.ReplaceAll(err.Error(), "\n", ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(t.Metadata.Annotations)) {
		if domain, _, _ := strings.Cut(key, "/"); domain == v1alpha1.GroupName || strings.HasSuffix(domain, "."+v1alpha1.GroupName) {
			return nil, runtime.NewInvalidSpec(nil, "%s.metadata.annotations: %s cannot be set", templateField, key)
		}
	}
	if all := t.Spec.Containers; len(all) > 1 || len(all) == 1 && all[0].Name != agent.Container {
		return nil, runtime.NewInvalidSpec(nil, "%s.spec.containers: only one container can be set, with the name %s", templateField, agent.Container)
	}
	return t, nil
}

// fill adds the template to a Pod, below what the Pod has.
func (t *template) fill(pod *corev1.Pod) {
	annotations := maps.Clone(t.Metadata.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, pod.Annotations)
	pod.Annotations = annotations
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, t.Spec.Tolerations...)
	pod.Spec.PriorityClassName = t.Spec.PriorityClassName
	if s := t.Spec.SecurityContext; s != nil {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsUser: s.RunAsUser, RunAsGroup: s.RunAsGroup, RunAsNonRoot: s.RunAsNonRoot, SupplementalGroups: s.SupplementalGroups,
			FSGroup: s.FSGroup, FSGroupChangePolicy: s.FSGroupChangePolicy, SeccompProfile: s.SeccompProfile,
		}
	}
	for _, c := range t.Spec.Containers {
		into := machineIn(pod)
		limits := corev1.ResourceList{}
		if cpu := c.Resources.Limits.CPU; cpu != nil {
			limits[corev1.ResourceCPU] = cpu.Quantity
		}
		if memory := c.Resources.Limits.Memory; memory != nil {
			limits[corev1.ResourceMemory] = memory.Quantity
		}
		into.Resources.Limits = limits
		if s := c.SecurityContext; s != nil {
			into.SecurityContext = &corev1.SecurityContext{
				RunAsUser: s.RunAsUser, RunAsGroup: s.RunAsGroup, RunAsNonRoot: s.RunAsNonRoot, SeccompProfile: s.SeccompProfile,
				AllowPrivilegeEscalation: s.AllowPrivilegeEscalation, ReadOnlyRootFilesystem: s.ReadOnlyRootFilesystem,
			}
			if s.Capabilities != nil {
				into.SecurityContext.Capabilities = &corev1.Capabilities{Drop: s.Capabilities.Drop}
			}
		}
	}
}

// onNodes adds the affinity to nodes of the Pod to that of the template: both must hold.
func (t *template) onNodes(own *corev1.Affinity) *corev1.Affinity {
	all := t.Spec.Affinity.DeepCopy()
	switch {
	case all == nil:
		return own
	case own == nil:
		return all
	case all.NodeAffinity == nil:
		all.NodeAffinity = own.NodeAffinity
		return all
	}
	into := all.NodeAffinity
	into.PreferredDuringSchedulingIgnoredDuringExecution = append(into.PreferredDuringSchedulingIgnoredDuringExecution,
		own.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	required := own.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	switch {
	case required == nil:
	case into.RequiredDuringSchedulingIgnoredDuringExecution == nil:
		into.RequiredDuringSchedulingIgnoredDuringExecution = required
	default:
		terms := into.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms // one of which must hold
		for i := range terms {
			terms[i].MatchFields = append(terms[i].MatchFields, required.NodeSelectorTerms[0].MatchFields...)
		}
	}
	return all
}
