package kubevirt

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// adopt marks a KubeVirt VirtualMachine without a mark, if the spec adopts one, and records the run strategy that it replaces.
func (r *Runtime) adopt(ctx context.Context, m runtime.Machine, vm *virtv1.VirtualMachine) (string, error) {
	was, err := vm.RunStrategy()
	if err != nil {
		return "", runtime.NewInvalidState(err, "the run strategy of KubeVirt VirtualMachine %s is not known: %s", vm.Name, err)
	}
	if owner := metav1.GetControllerOf(vm); owner != nil {
		return "", runtime.NewOwnedByAnother(nil, "spec.runtime.kubevirt: KubeVirt VirtualMachine %s is controlled by %s %s", vm.Name, owner.Kind, owner.Name)
	}
	return vm.Name, r.change(ctx, vm, "adopting", func(vm *virtv1.VirtualMachine) {
		mark(vm, m)
		annotate(vm, annotationAdopted, string(was))
		vm.Spec.Running, vm.Spec.RunStrategy = nil, new(virtv1.RunStrategyManual)
	})
}

// release removes the mark of an adopted machine, and puts back its run strategy, unless another client has changed it.
func (r *Runtime) release(ctx context.Context, s *sight) error {
	was := virtv1.VirtualMachineRunStrategy(s.vm.Annotations[annotationAdopted])
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
		return "", runtime.NewOwnedByAnother(nil, "spec.runtime.kubevirt: KubeVirt VirtualMachine %s was %s; it cannot be taken over otherwise", vm.Name,
			map[bool]string{true: "adopted", false: "created"}[adopted])
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
