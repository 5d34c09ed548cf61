package kubevirt

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// adopt marks a KubeVirt VirtualMachine without a mark, if the spec adopts one, and records the run strategy that it replaces.
func (r *Runtime) adopt(ctx context.Context, m runtime.Machine, vm *virtv1.VirtualMachine) (string, error) {
	was, err := vm.RunStrategy()
	if err != nil {
		return "", runtime.NewInvalidState(err, "the run strategy of KubeVirt VirtualMachine %s is not known: %s", vm.Name, err)
	}
	if owner := metav1.GetControllerOf(vm); owner != nil {
		return "", runtime.NewOwnedByAnother(nil, "spec.runtime.kubevirt: KubeVirt VirtualMachine %s is controlled by %s %s. To adopt it, detach it: %s", vm.Name, owner.Kind, owner.Name,
			commands.Line("kubectl", "patch", "virtualmachines.kubevirt.io", vm.Name, "-n", vm.Namespace, "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`))
	}
	if doing := (&sight{vm: vm}).verbs(); len(doing) > 0 { // KubeVirt keeps the run strategy meanwhile
		return "", runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s: %s", vm.Name, doing[0].Doing())
	}
	if was == virtv1.RunStrategyManual && m.Former != nil && m.Former.UID == vm.UID { // another client has removed the mark, and Manual is ours
		was = virtv1.VirtualMachineRunStrategy(m.Former.RunStrategy)
	}
	return vm.Name, r.change(ctx, vm, "adopting", func(vm *virtv1.VirtualMachine) {
		mark(vm, m)
		annotate(vm, annotationAdopted, string(was))
		vm.Spec.Running, vm.Spec.RunStrategy = nil, new(virtv1.RunStrategyManual)
	})
}

// adopted reports whether a KubeVirt VirtualMachine with the mark of m was adopted. Another client may have removed the annotation.
func adopted(vm *virtv1.VirtualMachine, m runtime.Machine) bool {
	_, is := vm.Annotations[annotationAdopted]
	return is || m.Spec.Adopts()
}

// former returns what an adopted machine was, as its annotation says, or the status if another client has removed that. It is nil if
// neither has it.
func former(vm *virtv1.VirtualMachine, m runtime.Machine) *v1alpha1.AdoptedVM {
	switch was := vm.Annotations[annotationAdopted]; {
	case was != "":
		return &v1alpha1.AdoptedVM{UID: vm.UID, RunStrategy: was}
	case m.Former != nil && m.Former.UID == vm.UID:
		return m.Former
	}
	return nil
}

// meantOn reports whether KubeVirt would have started an adopted machine, or is about to. A machine with RerunOnFailure or Once that was
// on before stays off after a shutdown. KubeVirt records a run strategy in the status at the first start.
func (s *sight) meantOn(was *v1alpha1.AdoptedVM) bool {
	if was == nil {
		return s.starting()
	}
	switch virtv1.VirtualMachineRunStrategy(was.RunStrategy) {
	case virtv1.RunStrategyAlways:
		return true
	case virtv1.RunStrategyRerunOnFailure, virtv1.RunStrategyOnce:
		return s.vm.Status.RunStrategy == "" || s.starting()
	}
	return s.starting()
}

// release removes the mark of an adopted machine, and puts back its run strategy, unless another client has changed it.
func (r *Runtime) release(ctx context.Context, s *sight, m runtime.Machine) error {
	var was virtv1.VirtualMachineRunStrategy
	if of := former(s.vm, m); of != nil {
		was = virtv1.VirtualMachineRunStrategy(of.RunStrategy)
	}
	return r.change(ctx, s.vm, "releasing", func(vm *virtv1.VirtualMachine) {
		delete(vm.Labels, LabelMachine)
		for _, key := range []string{annotationName, annotationSent, annotationAdopted} {
			delete(vm.Annotations, key)
		}
		if s.unusable() == "" {
			vm.Spec.RunStrategy = new(released(was, s.on() && !s.leaving()))
		}
	})
}

// released returns the run strategy of a machine that is released. It keeps the machine on or off, as it is: the former one may start or
// stop it. KubeVirt's own start and stop change between the same two.
func released(was virtv1.VirtualMachineRunStrategy, on bool) virtv1.VirtualMachineRunStrategy {
	switch {
	case was == virtv1.RunStrategyManual:
		return was
	case !on:
		return virtv1.RunStrategyHalted
	case was == virtv1.RunStrategyHalted || was == "":
		return virtv1.RunStrategyAlways
	}
	return was
}

// ofAnother returns the OwnedByAnother error for a KubeVirt VirtualMachine that is not the machine of m, with the way out. It has the mark of
// another VirtualMachine, which a clone and a restore under another name copy, and which outlives a VirtualMachine that was lost; or none.
func (r *Runtime) ofAnother(ctx context.Context, m runtime.Machine, vm *virtv1.VirtualMachine) error {
	var all v1alpha1.VirtualMachineList
	if err := r.Client.List(ctx, &all, client.InNamespace(m.Namespace)); err != nil {
		return runtime.APIFailure(err, "listing the VirtualMachines of namespace %s", m.Namespace)
	}
	of := vm.Labels[LabelMachine]
	remove := commands.Line("kubectl", "label", "virtualmachines.kubevirt.io", vm.Name, "-n", vm.Namespace, LabelMachine+"-")
	i := slices.IndexFunc(all.Items, func(o v1alpha1.VirtualMachine) bool { return string(o.UID) == of })
	why := ""
	switch {
	case !m.Spec.Adopts() && m.InstanceID != "":
		why = "exists without the label of VirtualMachine " + m.Name + ". If it is its machine, put the label back: " + commands.Line("kubectl", "label", "virtualmachines.kubevirt.io",
			vm.Name, "-n", vm.Namespace, "--overwrite", LabelMachine+"="+string(m.UID))
	case !m.Spec.Adopts():
		why = "exists and was not created for VirtualMachine " + m.Name + ": delete it, or give the VirtualMachine another name"
	case i < 0:
		why = "has the label " + LabelMachine + " of a VirtualMachine that no longer exists. To adopt it, remove the label: " + remove
	case all.Items[i].Status.InstanceID != "" && all.Items[i].Status.InstanceID != vm.Name:
		why = "has a copy of the label " + LabelMachine + " of VirtualMachine " + all.Items[i].Name + ", as a clone has. To adopt it, remove the label: " + remove
	default:
		why = "belongs to VirtualMachine " + all.Items[i].Name + ", not to VirtualMachine " + m.Name + ": name another one"
	}
	return runtime.NewOwnedByAnother(nil, "spec.runtime.kubevirt: KubeVirt VirtualMachine %s %s", vm.Name, why)
}

// isEarlier reports whether a KubeVirt VirtualMachine is marked for an earlier VirtualMachine of m's name, and m has no machine yet.
func isEarlier(vm *virtv1.VirtualMachine, m runtime.Machine) bool {
	of := vm.Labels[LabelMachine]
	return m.InstanceID == "" && of != "" && of != string(m.UID) && vm.Annotations[annotationName] == m.Name
}

// succeed takes over the machine of an earlier VirtualMachine of m's name, if m says so.
func (r *Runtime) succeed(ctx context.Context, m runtime.Machine, vm *virtv1.VirtualMachine) (string, error) {
	_, adopted := vm.Annotations[annotationAdopted]
	switch {
	case m.Earlier != runtime.TakeOver:
		return "", runtime.NewHeldBack("svm", m.NamespacedName, "KubeVirt VirtualMachine %s", vm.Name)
	case adopted != m.Spec.Adopts():
		return "", runtime.NewOwnedByAnother(nil, "spec.runtime.kubevirt: KubeVirt VirtualMachine %s was %s", vm.Name, map[bool]string{
			true:  "adopted: only a VirtualMachine that names it in spec.runtime.kubevirt.name can take it over",
			false: "created: only a VirtualMachine with spec.runtime.kubevirt.create can take it over",
		}[adopted])
	}
	return vm.Name, r.change(ctx, vm, "taking over", func(vm *virtv1.VirtualMachine) { mark(vm, m) })
}

// change patches a KubeVirt VirtualMachine with its resourceVersion, and updates vm.
func (r *Runtime) change(ctx context.Context, vm *virtv1.VirtualMachine, doing string, edit func(*virtv1.VirtualMachine)) error {
	changed := vm.DeepCopy()
	edit(changed)
	patch, err := r.patchOf(ctx, vm, changed)
	if err == nil {
		err = r.Client.Patch(ctx, changed, patch)
	}
	if err != nil {
		return runtime.APIFailure(err, "%s KubeVirt VirtualMachine %s", doing, vm.Name)
	}
	*vm = *changed
	return nil
}
