package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

// kubeVirtMachines is the resource of KubeVirt's VirtualMachines, as kubectl accepts it.
const kubeVirtMachines = "virtualmachines.kubevirt.io"

// ofKubeVirt returns the machines of KubeVirt with those names, or of the selection.
func (o *adopt) ofKubeVirt(ctx context.Context, c *cli.Cluster, names []string, ours []v1alpha1.VirtualMachine) (all []candidate, err error) {
	disks, err := readAll(ctx, c, &v1alpha1.VirtualDiskList{}, func(l *v1alpha1.VirtualDiskList) []v1alpha1.VirtualDisk { return l.Items })
	if err != nil {
		return nil, fmt.Errorf("reading the VirtualDisks: %w", err)
	}
	disks = slices.DeleteFunc(disks, func(d v1alpha1.VirtualDisk) bool {
		return d.Spec.Runtime.KubeVirt == nil || d.Status.DiskID == "" || d.Status.AttachedTo != nil &&
			slices.ContainsFunc(ours, func(vm v1alpha1.VirtualMachine) bool { return vm.UID == d.Status.AttachedTo.UID })
	})
	add := func(found []cli.Found) {
		for _, theirs := range found {
			next := candidate{name: theirs.GetName(), as: adopting(theirs.Unstructured, disks), err: adoptable(theirs.Unstructured, ours)}
			if was := strategyOf(theirs.Unstructured); was != "Manual" {
				next.changes = "run strategy changes from " + was + " to Manual"
			}
			all = append(all, next)
		}
	}
	if o.which.Given() {
		found, err := o.Find(c.Namespace, o.which, kubeVirtMachines)
		add(found)
		return all, err
	}
	for _, name := range names {
		found, err := o.Find(c.Namespace, o.which, kubeVirtMachines, name)
		if err != nil {
			all = append(all, candidate{name: name, err: err})
		}
		add(found)
	}
	return all, nil
}

// adoptable returns an error if a machine cannot be adopted under its name.
func adoptable(theirs *unstructured.Unstructured, ours []v1alpha1.VirtualMachine) error {
	mark, of := theirs.GetLabels()[v1alpha1.LabelMachineOfKubeVirt], "a VirtualMachine that does not exist in this namespace"
	for i := range ours {
		vm, k := &ours[i], ours[i].Spec.Runtime.KubeVirt
		switch {
		case mark == string(vm.UID) && vm.Status.InstanceID != "" && vm.Status.InstanceID != theirs.GetName():
			of = "VirtualMachine " + vm.Name + ", whose machine is " + vm.Status.InstanceID + ", and was copied, as by a clone"
		case mark == string(vm.UID), mark == "" && k != nil && k.Create == nil && cmp.Or(k.Name, vm.Name) == theirs.GetName():
			return skipped{text: "it belongs to VirtualMachine " + vm.Name + " of Sallyport", adopted: true}
		case mark == "" && vm.Name == theirs.GetName():
			return fmt.Errorf("VirtualMachine %s of Sallyport exists and is another machine: create one with another name and spec.runtime.kubevirt.name: %[1]s", vm.Name)
		}
	}
	switch owner := metav1.GetControllerOf(theirs); {
	case mark != "":
		remove := commands.Line("kubectl", "label", kubeVirtMachines, theirs.GetName(), "-n", theirs.GetNamespace(), v1alpha1.LabelMachineOfKubeVirt+"-")
		return skipped{text: fmt.Sprintf("its label %s is of %s. To adopt it, remove the label: %s", v1alpha1.LabelMachineOfKubeVirt, of, remove)}
	case owner != nil:
		return skipped{text: fmt.Sprintf("%s %s controls it", owner.Kind, owner.Name)}
	case theirs.GetDeletionTimestamp() != nil:
		return skipped{text: "it is being deleted"}
	}
	return nil
}

// adopting returns the VirtualMachine that adopts one of KubeVirt and keeps it on or off, as it is, with those of the disks that it has.
func adopting(theirs *unstructured.Unstructured, disks []v1alpha1.VirtualDisk) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: theirs.GetNamespace(), Name: theirs.GetName(), Labels: labelsFor(theirs.GetLabels())}}
	vm.Spec.Runtime.KubeVirt = &v1alpha1.KubeVirtRuntime{Name: theirs.GetName()}
	switch strategyOf(theirs) {
	case "Always", "Halted": // virtctl start and stop change between these two
		vm.Spec.RunPolicy = v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually
	default:
		vm.Spec.RunPolicy = v1alpha1.RunPolicyManual
	}
	volumes, _, _ := unstructured.NestedSlice(theirs.Object, "spec", "template", "spec", "volumes")
	for _, volume := range volumes {
		of, _ := volume.(map[string]any)
		claim, _, _ := unstructured.NestedString(of, "persistentVolumeClaim", "claimName")
		if claim == "" {
			claim, _, _ = unstructured.NestedString(of, "dataVolume", "name")
		}
		if i := slices.IndexFunc(disks, func(d v1alpha1.VirtualDisk) bool { return d.Status.DiskID == claim }); i >= 0 {
			vm.Spec.BlockDeviceRefs = append(vm.Spec.BlockDeviceRefs, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: disks[i].Name})
		}
	}
	return vm
}

// strategyOf returns the run strategy of a VirtualMachine of KubeVirt, also if it has the older field running.
func strategyOf(theirs *unstructured.Unstructured) string {
	if strategy, _, _ := unstructured.NestedString(theirs.Object, "spec", "runStrategy"); strategy != "" {
		return strategy
	}
	if running, _, _ := unstructured.NestedBool(theirs.Object, "spec", "running"); running {
		return "Always"
	}
	return "Halted"
}
