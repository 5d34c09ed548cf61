package runtime

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Uncopied are labels of VirtualMachines that are not copied to objects created for them: keys, or PREFIX/* for all keys with a prefix.
// Deployment tools delete objects that have their labels and are not in what they deploy.
type Uncopied []string

// DefaultUncopied returns labels by which deployment and backup tools recognize what they made.
func DefaultUncopied() Uncopied {
	return Uncopied{
		"addonmanager.kubernetes.io/*", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "applyset.kubernetes.io/*", "argocd.argoproj.io/*",
		"fleet.cattle.io/*", "helm.sh/*", "helm.toolkit.fluxcd.io/*", "kapp.k14s.io/*", "kubecfg.ksonnet.io/*", "kustomize.toolkit.fluxcd.io/*",
		"objectset.rio.cattle.io/*", "tanka.dev/*", "velero.io/*",
	}
}

// Rest returns the labels that are copied.
func (u Uncopied) Rest(labels map[string]string) map[string]string {
	rest := maps.Clone(labels)
	maps.DeleteFunc(rest, func(key, _ string) bool {
		prefix, _, prefixed := strings.Cut(key, "/")
		return slices.Contains(u, key) || prefixed && slices.Contains(u, prefix+"/*")
	})
	return rest
}

// labelsOf returns the labels of a VirtualMachine that are copied to objects created for it. Sallyport's own labels
// are not copied: the one for deletion protection, for example, applies to the object on which a user set it.
// Autoscalers select the members of a pool by the pool's labels.
func labelsOf(vm *v1alpha1.VirtualMachine) map[string]string {
	owner := metav1.GetControllerOf(vm)
	member := owner != nil && owner.Kind == "VirtualMachinePool" && string(owner.UID) == vm.Labels[v1alpha1.LabelPoolUID]
	labels := maps.Clone(vm.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool {
		prefix, _, prefixed := strings.Cut(key, "/")
		ours := prefixed && (prefix == v1alpha1.GroupName || strings.HasSuffix(prefix, "."+v1alpha1.GroupName))
		return ours && (!member || key != v1alpha1.LabelPool && key != v1alpha1.LabelPoolUID)
	})
	return labels
}
