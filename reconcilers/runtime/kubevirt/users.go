package kubevirt

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

// namespaced are the machines of KubeVirt in a namespace.
type namespaced struct {
	vms       []virtv1.VirtualMachine
	instances []virtv1.VirtualMachineInstance
	// pods is empty unless it was read live: the cache has no Pods of KubeVirt.
	pods []corev1.Pod
}

// inNamespace reads the machines of a namespace.
func (r *Runtime) inNamespace(ctx context.Context, namespace string, live bool) (all namespaced, err error) {
	var vms virtv1.VirtualMachineList
	var instances virtv1.VirtualMachineInstanceList
	var pods corev1.PodList
	from, lists := client.Reader(r.Client), []client.ObjectList{&vms, &instances}
	if live {
		from, lists = r.Live, append(lists, &pods)
	}
	for _, list := range lists {
		if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return all, runtime.APIFailure(err, "listing what uses the PersistentVolumeClaims of namespace %s", namespace)
		}
	}
	// An instance speaks for the Pods that KubeVirt runs for it.
	return namespaced{vms.Items, instances.Items, slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Labels[virtv1.AppLabel] == "virt-launcher" || p.Labels[virtv1.AppLabel] == "hotplug-disk"
	})}, nil
}

// users returns what has the claim: machines, whether they are on or off, and Pods if it reads live.
func (r *Runtime) users(ctx context.Context, claim *corev1.PersistentVolumeClaim, live bool) ([]volumes.User, error) {
	all, err := r.inNamespace(ctx, claim.Namespace, live)
	if err != nil {
		return nil, err
	}
	return all.users(claim.Name), nil
}

func (n *namespaced) users(claim string) (users []volumes.User) {
	marks := map[string]types.UID{}
	for i := range n.vms {
		vm := &n.vms[i]
		marks[vm.Name] = types.UID(vm.Labels[LabelMachine])
		if len(usesOf(vm, nil, claim)) > 0 {
			users = append(users, userOf(vm))
		}
	}
	for i := range n.instances {
		vmi := &n.instances[i]
		if len(usesOf(nil, vmi, claim)) > 0 {
			users = append(users, volumes.User{Name: "VirtualMachineInstance " + vmi.Name, Machine: marks[vmi.Name]})
		}
	}
	return append(users, volumes.PodsUsing(n.pods, claim, LabelMachine)...)
}

func userOf(vm *virtv1.VirtualMachine) volumes.User {
	return volumes.User{Name: "KubeVirt VirtualMachine " + vm.Name, Machine: types.UID(vm.Labels[LabelMachine])}
}

// wakes lets the starts in a namespace take turns: of two machines with one claim that are started at the same time, one is seen to start by the
// other.
type wakes struct{ turns sync.Map }

func (w *wakes) turn(ctx context.Context, namespace string) (end func(), err error) {
	of, _ := w.turns.LoadOrStore(namespace, make(chan struct{}, 1))
	turn := of.(chan struct{})
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, runtime.NewUnavailable(ctx.Err(), "other machines of namespace %s are being started", namespace)
	}
}

// alone returns an error if the machine must not be started because something else writes, or is about to write, to one of its claims, or one
// is a VirtualDisk that is attached to another machine. A machine that is off, and of which no status says that it has the claim, does not count.
func (r *Runtime) alone(ctx context.Context, s *sight, m runtime.Machine) error {
	claims := claimsOf(s.vm)
	if len(claims) == 0 {
		return nil
	}
	var disks v1alpha1.VirtualDiskList
	if err := r.Live.List(ctx, &disks, client.InNamespace(m.Namespace)); err != nil {
		return runtime.APIFailure(err, "listing the VirtualDisks of namespace %s", m.Namespace)
	}
	for i := range disks.Items {
		d := &disks.Items[i]
		holder := d.Status.AttachedTo
		if holder != nil && holder.UID != m.UID && !d.StatusOfAnother() && d.Spec.Runtime.KubeVirt != nil && slices.Contains(claims, d.Status.DiskID) {
			return runtime.NewInUse("PersistentVolumeClaim %s is VirtualDisk %s, which VirtualMachine %s uses: remove the volume here: %s; or remove %s "+
				"from spec.blockDeviceRefs there: %s", d.Status.DiskID, d.Name, holder.Name,
				commands.Line("kubectl", "edit", "virtualmachines.kubevirt.io", s.vm.Name, "-n", m.Namespace), d.Name,
				commands.Line("kubectl", "edit", "svm", holder.Name, "-n", m.Namespace))
		}
	}
	all, err := r.inNamespace(ctx, m.Namespace, true)
	if err != nil {
		return err
	}
	for _, claim := range claims {
		mine := usesOf(s.vm, nil, claim)
		if user, used := all.writer(s.vm, claim, mine); used {
			return runtime.NewInUse("%s uses PersistentVolumeClaim %s, and two machines must not write to one disk: stop it, or wait until it ends. If the guests "+
				"can share the disk, set shareable: true for it in both machines", user.Name, claim)
		}
	}
	return nil
}

// writer returns who else is on with a claim, or about to be, so that one of the two would write to what the other has.
func (n *namespaced) writer(vm *virtv1.VirtualMachine, claim string, mine []use) (volumes.User, bool) {
	for i := range n.instances {
		vmi := &n.instances[i]
		if vmi.Name != vm.Name && collide(mine, usesOf(nil, vmi, claim)) {
			return volumes.User{Name: "VirtualMachineInstance " + vmi.Name}, true
		}
	}
	for i := range n.vms {
		other := &n.vms[i]
		if other.UID != vm.UID && isToRun(other) && collide(mine, usesOf(other, nil, claim)) {
			return userOf(other), true
		}
	}
	if slices.ContainsFunc(mine, func(u use) bool { return !u.reads && !u.shared }) {
		if pods := volumes.PodsUsing(n.pods, claim, LabelMachine); len(pods) > 0 {
			return pods[0], true
		}
	}
	return volumes.User{}, false
}

// isToRun reports whether KubeVirt starts a machine, or has accepted a request to.
func isToRun(vm *virtv1.VirtualMachine) bool {
	strategy, err := vm.RunStrategy()
	meant := err == nil && (strategy == virtv1.RunStrategyAlways || strategy == virtv1.RunStrategyRerunOnFailure)
	return meant || (&sight{vm: vm}).requested(virtv1.StartRequest)
}

// collide reports whether two machines with these uses of a claim harm its data: one of them writes, and it is not shared on purpose.
func collide(a, b []use) bool {
	for _, mine := range a {
		for _, theirs := range b {
			if (!mine.reads || !theirs.reads) && (!mine.shared || !theirs.shared) {
				return true
			}
		}
	}
	return false
}
