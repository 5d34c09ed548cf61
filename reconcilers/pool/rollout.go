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

// rollOut gives members the present template, no more at a time than may be unavailable, and tells whether it did. What of it takes a
// restart is the business of the VirtualMachine reconciler, by the restartApprovalMode of the template.
func (r *Reconciler) rollOut(ctx context.Context, l *look) (bool, error) {
	next := l.next()
	for _, m := range next {
		if err := r.bringUp(ctx, l, m); err != nil {
			l.lags = fmt.Errorf("updating VirtualMachine %s to the current template: %w", m.Name, err)
			return true, l.lags
		}
	}
	return len(next) > 0, nil
}

// next are the members that may be given the present template now. Those that are not available anyway always may.
func (l *look) next() (next []member) {
	room := l.mayBeUnavailable() - l.unavailable()
	for _, m := range l.outdated() {
		if m.available() {
			if room <= 0 {
				continue
			}
			room--
		}
		if next = append(next, m); len(next) == most {
			break
		}
	}
	return next
}

// outdated are the members with an earlier template.
func (l *look) outdated() []member {
	return slices.DeleteFunc(l.staying(), func(m member) bool { return m.Labels[v1alpha1.LabelTemplateHash] == l.hash })
}

// mayBeUnavailable is how many members may be unavailable because of a change of the template.
func (l *look) mayBeUnavailable() int {
	most := l.pool.Spec.Rollout.MaxUnavailable
	if most == nil {
		return 1
	}
	count, err := intstr.GetScaledValueFromIntOrPercent(most, l.desired(), true)
	if err != nil { // the schema has it right
		return 1
	}
	return max(count, 1)
}

// unavailable is how many members do not run that should, with those that are missing.
func (l *look) unavailable() int {
	count := max(0, l.desired()-len(l.staying()))
	for _, m := range l.staying() {
		if !m.available() {
			count++
		}
	}
	return count
}

// available reports whether the member does what it should: runs, unless it was stopped on purpose, and has taken its spec.
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

// restartRequired reports whether the member waits for a restart to be as its spec says.
func (m member) restartRequired() bool {
	c := v1alpha1.ConditionRestartRequired.In(m.Status.Conditions)
	return c != nil && c.Status == metav1.ConditionTrue
}

// bringUp writes the template over a member as it was read.
func (r *Reconciler) bringUp(ctx context.Context, l *look, m member) error {
	vm := m.DeepCopy()
	labels, annotations, err := written(vm)
	if err != nil {
		return err
	}
	template := l.pool.Spec.VirtualMachineTemplate.DeepCopy()
	resolve(l.pool.Name, m.slot, &template.Spec)
	vm.Spec = template.Spec
	vm.Labels = replaced(vm.Labels, labels, labelsOf(l.pool, l.hash))
	vm.Annotations = replaced(vm.Annotations, annotations, stringsOf(template.Metadata.Annotations))
	patch := client.MergeFromWithOptions(m.VirtualMachine, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, vm, patch, client.FieldOwner(manager)); err != nil {
		return err
	}
	r.Events.Eventf(l.pool, vm, corev1.EventTypeNormal, "SuccessfulUpdate", "RollOut", "updated VirtualMachine %s to the current template", vm.Name)
	return nil
}

// written gives the keys of the labels and annotations that a pool wrote in a member, by its managed fields.
func written(vm *v1alpha1.VirtualMachine) (labels, annotations []string, err error) {
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

// replaced gives a map with some of its keys taken out, and others put in.
func replaced(of map[string]string, out []string, in map[string]string) map[string]string {
	after := map[string]string{}
	maps.Copy(after, of)
	for _, key := range out {
		delete(after, key)
	}
	maps.Copy(after, in)
	return after
}
