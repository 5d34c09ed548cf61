package runtime

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// labelsOf returns the labels of a VirtualMachine that what is created for it also has. A label of Sallyport, such as the one that protects
// from deletion, is about the object that a user set it on. Autoscalers select the members of a pool by the labels of the pool.
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
