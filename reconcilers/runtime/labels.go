package runtime

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

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
