package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// rollOut updates members to the current template, within maxUnavailable, and reports whether it did. The
// VirtualMachine reconciler performs the restarts that the changes need, according to the template's
// restartApprovalMode.
func (r *Reconciler) rollOut(ctx context.Context, v *view) (bool, error) {
	members := v.updatable()
	for _, m := range members {
		if err := r.applyTemplate(ctx, v, m); err != nil {
			v.updateErr = fmt.Errorf("updating VirtualMachine %s to the current template: %w", m.Name, err)
			return true, v.updateErr
		}
	}
	return len(members) > 0, nil
}

// updatable returns the members that may be updated now. Unavailable members always may.
func (v *view) updatable() (updatable []member) {
	room := v.maxUnavailable() - v.unavailable()
	for _, m := range v.outdated() {
		if m.available() {
			if room <= 0 {
				continue
			}
			room--
		}
		if updatable = append(updatable, m); len(updatable) == maxPerPass {
			break
		}
	}
	return updatable
}

func (v *view) outdated() []member {
	return slices.DeleteFunc(v.remaining(), func(m member) bool { return m.Labels[v1alpha1.LabelTemplateHash] == v.hash })
}

// maxUnavailable returns how many members may be unavailable because of a rollout.
func (v *view) maxUnavailable() int {
	limit := v.pool.Spec.Rollout.MaxUnavailable
	if limit == nil {
		return 1
	}
	count, err := intstr.GetScaledValueFromIntOrPercent(limit, v.desired(), true)
	if err != nil { // excluded by the schema
		return 1
	}
	return max(count, 1)
}

// unavailable returns how many members are missing or not available.
func (v *view) unavailable() int {
	count := max(0, v.desired()-len(v.remaining()))
	for _, m := range v.remaining() {
		if !m.available() {
			count++
		}
	}
	return count
}

// available reports whether the member is in its intended state: it runs or was stopped on purpose, and its spec is
// applied.
func (m member) available() bool {
	switch {
	case m.Status.ObservedGeneration != m.Generation:
		return false
	case m.Spec.RestartApprovalMode == v1alpha1.RestartAutomatic && m.restartRequired():
		return false
	case m.Spec.RunPolicy == v1alpha1.RunPolicyAlwaysOff,
		m.Status.PowerIntent != nil && m.Status.PowerIntent.State == v1alpha1.PowerStopped && m.Spec.RunPolicy != v1alpha1.RunPolicyAlwaysOn:
		return m.Status.Phase == v1alpha1.VirtualMachineStopped
	}
	return m.ready()
}

// restartRequired reports whether the member needs a restart to apply its spec.
func (m member) restartRequired() bool {
	c := v1alpha1.ConditionRestartRequired.In(m.Status.Conditions)
	return c != nil && c.Status == metav1.ConditionTrue
}

// applyTemplate patches a member with the template, with its resourceVersion.
func (r *Reconciler) applyTemplate(ctx context.Context, v *view, m member) error {
	vm := m.DeepCopy()
	labels, annotations, err := writtenKeys(vm)
	if err != nil {
		return err
	}
	template := v.pool.Spec.VirtualMachineTemplate.DeepCopy()
	resolveDisks(v.pool.Name, m.slot, &template.Spec)
	vm.Spec = template.Spec
	vm.Labels = replaceKeys(vm.Labels, labels, labelsOf(v.pool, v.hash))
	vm.Annotations = replaceKeys(vm.Annotations, annotations, stringsOf(template.Metadata.Annotations))
	patch := client.MergeFromWithOptions(m.VirtualMachine, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, vm, patch, client.FieldOwner(manager)); err != nil {
		return err
	}
	r.Events.Eventf(v.pool, vm, corev1.EventTypeNormal, "SuccessfulUpdate", "RollOut", "updated VirtualMachine %s to the current template", vm.Name)
	return nil
}

// writtenKeys returns the keys of the labels and annotations that the pool wrote in a member, from its managed
// fields.
func writtenKeys(vm *v1alpha1.VirtualMachine) (labels, annotations []string, err error) {
	for _, entry := range vm.ManagedFields {
		if entry.Manager != manager || entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		var fields fieldpath.Set
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, nil, fmt.Errorf("metadata.managedFields of VirtualMachine %s: %w", vm.Name, err)
		}
		owned := func(of map[string]string, where string) []string {
			return slices.DeleteFunc(slices.Collect(maps.Keys(of)), func(key string) bool {
				return !fields.Has(fieldpath.MakePathOrDie("metadata", where, key))
			})
		}
		labels = append(labels, owned(vm.Labels, "labels")...)
		annotations = append(annotations, owned(vm.Annotations, "annotations")...)
	}
	return labels, annotations, nil
}

// replaceKeys returns a copy of a map with some keys removed and others added.
func replaceKeys(original map[string]string, remove []string, add map[string]string) map[string]string {
	after := map[string]string{}
	maps.Copy(after, original)
	for _, key := range remove {
		delete(after, key)
	}
	maps.Copy(after, add)
	return after
}
