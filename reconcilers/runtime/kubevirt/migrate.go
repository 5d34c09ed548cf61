package kubevirt

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// moves returns the migrations of an instance, also those that have ended.
func (r *Runtime) moves(ctx context.Context, instance types.NamespacedName) ([]virtv1.VirtualMachineInstanceMigration, error) {
	var list virtv1.VirtualMachineInstanceMigrationList
	if err := r.Live.List(ctx, &list, client.InNamespace(instance.Namespace), client.MatchingLabels{virtv1.MigrationSelectorLabel: instance.Name}); err != nil {
		return nil, runtime.APIFailure(err, "listing the migrations of VirtualMachineInstance %s", instance.Name)
	}
	return list.Items, nil
}

// InstanceOf returns the name of the instance that an object of KubeVirt is, has or moves.
func InstanceOf(o client.Object) string {
	return cmp.Or(o.GetLabels()[virtv1.MigrationSelectorLabel], o.GetName())
}

// moving returns the task of a migration. KubeVirt begins some on its own: to empty a node, and to update virt-launcher.
func moving(move *virtv1.VirtualMachineInstanceMigration, machine string) runtime.Task {
	task := runtime.Task{ID: string(move.UID), Kind: runtime.TaskRelocate, Ours: move.Labels[LabelMachine] == machine}
	_, evacuates := move.Annotations[virtv1.EvacuationMigrationAnnotation]
	_, updates := move.Annotations[virtv1.WorkloadUpdateMigrationAnnotation]
	switch {
	case task.Ours:
	case evacuates:
		task.By = "KubeVirt, which evacuates node " + move.Annotations[virtv1.EvacuationMigrationAnnotation]
	case updates:
		task.By = "KubeVirt, which updates its workloads"
	default:
		task.By = others
	}
	task.Yields = !task.Ours // KubeVirt ends the migration of an instance that is stopped
	return task
}

// Migrate creates a migration. KubeVirt moves an instance only to another node than its own.
func (r *Runtime) Migrate(ctx context.Context, m runtime.Machine, target runtime.Target) error {
	return decide(func() error { return r.migrate(ctx, m, target) })
}

func (r *Runtime) migrate(ctx context.Context, m runtime.Machine, target runtime.Target) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	if !s.on() {
		return runtime.NewInvalidState(nil, "VirtualMachine %s is not on: KubeVirt chooses its node when it is powered on", m)
	}
	now := s.vmi.Status.NodeName
	if target.NodeName == "" {
		target.Leave = cmp.Or(target.Leave, now)
	}
	nodes, err := r.suitable(ctx, m, target, now)
	if err != nil {
		return err
	}
	busy, changing := s.busy(), s.plugOf(func(p *plug) bool { return p.adding || p.removing })
	switch {
	case busy != nil && len(s.moves) == 1 && maps.Equal(s.moves[0].Spec.AddedNodeSelector, selectorOf(nodes, target)):
		return nil
	case busy != nil:
		return s.conflict()
	case slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == now }):
		return nil
	case changing != nil:
		return runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s: %s", s.vm.Name, changing.doing())
	case len(nodes) == 0 && target.NodeName != "":
		return runtime.NewInvalidState(nil, "node %s is not there for machines of KubeVirt: it does not exist, is not ready, is cordoned or lacks labels of the spec", target.NodeName)
	case len(nodes) == 0:
		return runtime.NewInvalidState(nil, "no other node is ready for machines of KubeVirt and has the labels of the spec")
	}
	name, err := r.nextMove(ctx, s)
	if err != nil {
		return err
	}
	move := &virtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: name, Labels: map[string]string{LabelMachine: string(m.UID)},
			// One that is requested late is collected if the instance that it was for is gone.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: virtv1.GroupVersion.String(), Kind: "VirtualMachineInstance", Name: s.vmi.Name, UID: s.vmi.UID}},
		},
		Spec: virtv1.VirtualMachineInstanceMigrationSpec{VMIName: s.vmi.Name, AddedNodeSelector: selectorOf(nodes, target)},
	}
	if err := r.Client.Create(ctx, move); err != nil && !apierrors.IsAlreadyExists(err) {
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || refused(err) {
			return runtime.NewInvalidState(err, "KubeVirt cannot move the machine: %s", reason(err))
		}
		return runtime.APIFailure(err, "moving KubeVirt VirtualMachine %s", s.vm.Name)
	}
	return nil
}

// nextMove returns the name of a migration to create. It is announced, and stays the same until there is such a migration: if a request to
// create it is delayed until its caller has given up, it does not create a second one.
func (r *Runtime) nextMove(ctx context.Context, s *sight) (string, error) {
	name := func() string { return named(s.vm.Name, announcedOf(s.vm).id) }
	if announcedOf(s.vm).kind == runtime.TaskRelocate && !slices.ContainsFunc(s.ended, func(v virtv1.VirtualMachineInstanceMigration) bool { return v.Name == name() }) {
		return name(), nil
	}
	err := r.announce(ctx, s, runtime.TaskRelocate, nil)
	return name(), err
}

// maxName is how long names are that KubeVirt writes into labels.
const maxName = 63

// named returns a name that ends in an ID. KubeVirt writes it into labels, so a long name is cut.
func named(name, id string) string {
	return strings.TrimRight(name[:min(len(name), maxName-1-len(id))], "-.") + "-" + id
}

// refused reports whether an admission webhook refused the request.
func refused(err error) bool { return strings.HasPrefix(reason(err), "admission webhook ") }

// suitable returns the nodes that match the target and the spec and are ready for machines. The node that the machine is on need not be.
func (r *Runtime) suitable(ctx context.Context, m runtime.Machine, target runtime.Target, now string) ([]corev1.Node, error) {
	wanted := labels.Set{virtv1.NodeSchedulable: "true"}
	for _, of := range []map[string]v1alpha1.LabelValue{m.Spec.NodeSelector, target.NodeSelector} {
		for key, value := range of {
			if was, is := wanted[key]; is && was != string(value) {
				return nil, nil // no node has both
			}
			wanted[key] = string(value)
		}
	}
	var list corev1.NodeList
	if err := r.Live.List(ctx, &list, client.MatchingLabels(wanted)); err != nil {
		return nil, runtime.APIFailure(err, "listing the nodes")
	}
	return slices.DeleteFunc(list.Items, func(n corev1.Node) bool {
		fits := n.Name == now || ready(&n) && !n.Spec.Unschedulable
		return !fits || target.NodeName != "" && n.Name != target.NodeName || target.NodeName == "" && n.Name == target.Leave
	}), nil
}

// selectorOf returns the labels that KubeVirt restricts a migration to. A node is named by its hostname label, which may differ from its
// name.
func selectorOf(nodes []corev1.Node, target runtime.Target) map[string]string {
	selector := map[string]string{}
	for key, value := range target.NodeSelector {
		selector[key] = string(value)
	}
	if target.NodeName != "" && len(nodes) == 1 {
		selector[corev1.LabelHostname] = nodes[0].Labels[corev1.LabelHostname]
	}
	return selector
}

// cancelMove deletes a migration, which KubeVirt then aborts.
func (r *Runtime) cancelMove(ctx context.Context, s *sight, uid string) error {
	for i := range s.moves {
		move := &s.moves[i]
		if string(move.UID) != uid {
			continue
		}
		if err := r.Client.Delete(ctx, move, client.Preconditions{UID: &move.UID}); client.IgnoreNotFound(err) != nil {
			return runtime.APIFailure(err, "cancelling migration %s", move.Name)
		}
	}
	return nil
}
