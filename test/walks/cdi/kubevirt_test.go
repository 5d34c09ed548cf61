//go:build cdi && kubevirt

package cdi

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/virt"
)

// Machines of the real KubeVirt have disks of the real CDI and CSI.
func TestKubeVirt(t *testing.T) {
	s := newSite(t, withKubeVirt())
	const ns = "kubevirt-disks"
	s.namespace(ns)
	ubuntu := image(ns, "ubuntu")
	ubuntu.Spec.SnapshotClass = class
	s.Must(s.Create(s.Context(), ubuntu))
	s.shows(ubuntu, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	t.Run("a machine", func(t *testing.T) { s.in(t).machineOfKubeVirt(ns) })
	t.Run("an adopted machine", func(t *testing.T) { s.in(t).adoptedByKubeVirt(ns) })
	t.Run("a pool", func(t *testing.T) { s.in(t).poolOfKubeVirt(ns) })
}

// withKubeVirt installs KubeVirt after CDI: virt-api begins anew when CDI appears later.
func withKubeVirt() addition {
	var c *virt.Cluster
	return addition{
		configure: func(s *site, o *env.Options) {
			var err error
			c, err = virt.Prepare(context.WithoutCancel(s.Context()), s.folder, s.Logf)
			s.Must(err)
			s.Must(c.Configure(o))
		},
		install: func(s *site) {
			s.Cleanup(func() {
				c.Stop()
				if s.Failed() {
					s.Log(c.Logs())
				}
			})
			s.Must(c.Install(context.WithoutCancel(s.Context()), s.plane))
		},
		values: []string{"runtimes.kubevirt.enabled=true"},
	}
}

func onKubeVirt() v1alpha1.VirtualMachineSpec {
	return v1alpha1.VirtualMachineSpec{
		Memory: new(resource.MustParse("64Mi")), RunPolicy: v1alpha1.RunPolicyAlwaysOn,
		Runtime:   v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Create: &v1alpha1.KubeVirtMachine{}}},
		DiskImage: &v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Name: "ubuntu"}},
	}
}

// machineOfKubeVirt is the life of a machine that boots from an image, and of an empty disk, which outlives it.
func (s *site) machineOfKubeVirt(ns string) {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: onKubeVirt()}
	s.Must(s.Create(s.Context(), vm))
	s.runsOnKubeVirt(vm)
	first, boot := vm.Status.Incarnation, s.plugged(ns, "web", "web-boot")
	if boot.PersistentVolumeClaim.Hotpluggable || !bytes.Equal(s.claimed(ns, boot.PersistentVolumeClaim.ClaimName), data(ns)) {
		s.Errorf("the machine boots from %+v", boot)
	}

	disk := s.emptyDisk(ns, "cache")
	s.setDisks(vm, "cache")
	s.hasDisks(vm, "cache", "web-boot")
	if now := s.plugged(ns, "web", "cache"); vm.Status.Incarnation != first || !now.PersistentVolumeClaim.Hotpluggable {
		s.Errorf("the disk was attached as %+v to %s, not to %s", now, vm.Status.Incarnation, first)
	}

	other := map[string]string{"node-1": "node-2", "node-2": "node-1"}[vm.Status.NodeName]
	s.succeeds(vm, "move", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationMigrate, Migrate: &v1alpha1.MigrateTarget{NodeName: other}})
	s.hasDisks(vm, "cache", "web-boot")

	s.Must(s.Patch(s.Context(), disk, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"size":"16Mi"}}`))))
	s.Until("the disk has grown", func() (string, bool) {
		s.read(disk)
		size := disk.Status.Capacity
		return fmt.Sprintf("%+v", disk.Status), size != nil && size.Value() == 16<<20
	})

	s.setDisks(vm)
	s.hasDisks(vm, "web-boot")
	s.setDisks(vm, "cache")
	s.hasDisks(vm, "cache", "web-boot")
	s.succeeds(vm, "restart", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationRestart})
	s.hasDisks(vm, "cache", "web-boot")

	s.Must(s.Delete(s.Context(), vm))
	s.Eventually("the machine is gone", func() bool { return !s.read(vm) })
	s.Until("the disk of the machine is gone, the other one is free", func() (string, bool) {
		s.read(disk)
		left := []string{}
		for _, claim := range s.claims(ns) {
			left = append(left, claim.Name)
		}
		return fmt.Sprintf("%+v, claims %v", disk.Status, left), disk.Status.AttachedTo == nil && len(left) == 2 && slices.Contains(left, disk.Status.DiskID)
	})
	s.Must(s.Delete(s.Context(), disk))
	s.Eventually("the disk is gone", func() bool { return !s.read(disk) })
}

// adoptedByKubeVirt attaches a disk to a machine of a user, which keeps it when it is released.
func (s *site) adoptedByKubeVirt(ns string) {
	theirs := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"}}
	theirs.Spec.RunStrategy, theirs.Spec.Template = new(virtv1.RunStrategyAlways), &virtv1.VirtualMachineInstanceTemplateSpec{}
	theirs.Spec.Template.Spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("64Mi"))}
	s.Must(s.Create(s.Context(), theirs))
	disk := s.emptyDisk(ns, "data")
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"}, Spec: v1alpha1.VirtualMachineSpec{
		Runtime:         v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{}},
		BlockDeviceRefs: []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "data"}},
	}}
	s.Must(s.Create(s.Context(), vm))
	s.hasDisks(vm, "data")
	s.Must(s.Delete(s.Context(), vm))
	s.Eventually("the machine is released", func() bool { return !s.read(vm) })
	s.Must(s.Delete(s.Context(), theirs))
	s.Eventually("the machine is gone", func() bool { return !s.read(theirs) })
	s.Must(s.Delete(s.Context(), disk))
	s.Eventually("the disk is gone", func() bool { return !s.read(disk) })
}

// poolOfKubeVirt has each member boot from its own copy of the image.
func (s *site) poolOfKubeVirt(ns string) {
	pool := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}}
	pool.Spec.Replicas, pool.Spec.ScaleDownPolicy = new(int32(2)), v1alpha1.ScaleDownNewestFirst
	pool.Spec.VirtualMachineTemplate.Spec = onKubeVirt()
	s.Must(s.Create(s.Context(), pool))
	claims := map[string]bool{}
	for _, name := range []string{"ci-0", "ci-1"} {
		member := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		s.runsOnKubeVirt(member)
		claim := s.plugged(ns, name, name+"-boot").PersistentVolumeClaim.ClaimName
		if claims[claim] = true; !bytes.Equal(s.claimed(ns, claim), data(ns)) {
			s.Errorf("%s boots from other data", name)
		}
	}
	if len(claims) != 2 {
		s.Errorf("the members boot from %v", claims)
	}
	s.Must(s.Delete(s.Context(), pool, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.Eventually("the pool is gone", func() bool { return !s.read(pool) })
}

func (s *site) runsOnKubeVirt(vm *v1alpha1.VirtualMachine) {
	s.Helper()
	s.Until("VirtualMachine "+vm.Name+" runs", func() (string, bool) {
		s.read(vm)
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == v1alpha1.VirtualMachineRunning && !vm.Busy()
	})
}

// plugged returns the volume of a disk in the instance of a machine, in which it is ready.
func (s *site) plugged(ns, machine, disk string) (v virtv1.Volume) {
	s.Helper()
	d := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: disk}}
	s.Until("disk "+disk+" is ready in the instance", func() (string, bool) {
		s.read(d)
		vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: machine}}
		s.read(vmi)
		for _, of := range vmi.Spec.Volumes {
			if of.PersistentVolumeClaim != nil && of.PersistentVolumeClaim.ClaimName == d.Status.DiskID {
				v = of
			}
		}
		ready := slices.ContainsFunc(vmi.Status.VolumeStatus, func(st virtv1.VolumeStatus) bool {
			return st.Name == v.Name && (st.HotplugVolume == nil || st.Phase == virtv1.VolumeReady)
		})
		return fmt.Sprintf("%+v", vmi.Status.VolumeStatus), v.Name != "" && ready
	})
	return v
}

func (s *site) emptyDisk(ns, name string) *v1alpha1.VirtualDisk {
	s.Helper()
	disk := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.VirtualDiskSpec{
		Size: resource.MustParse("8Mi"), Runtime: v1alpha1.VirtualDiskRuntime{KubeVirt: &v1alpha1.VolumeDisk{StorageClassName: class}},
	}}
	s.Must(s.Create(s.Context(), disk))
	s.diskIsReady(disk)
	return disk
}

func (s *site) setDisks(vm *v1alpha1.VirtualMachine, names ...string) {
	s.Helper()
	before := vm.DeepCopy()
	vm.Spec.BlockDeviceRefs = nil
	for _, name := range names {
		vm.Spec.BlockDeviceRefs = append(vm.Spec.BlockDeviceRefs, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: name})
	}
	s.Must(s.Patch(s.Context(), vm, client.MergeFrom(before)))
}

// hasDisks waits until a machine has those disks, and its condition says so.
func (s *site) hasDisks(vm *v1alpha1.VirtualMachine, want ...string) {
	s.Helper()
	s.Until(fmt.Sprintf("VirtualMachine %s has the disks %v", vm.Name, want), func() (string, bool) {
		s.read(vm)
		names := []string{}
		for _, d := range vm.Status.Disks {
			names = append(names, d.Name)
		}
		slices.Sort(names)
		attached := v1alpha1.ConditionDisksAttached.In(vm.Status.Conditions)
		return fmt.Sprintf("%+v", vm.Status), slices.Equal(names, want) && attached != nil && attached.Status == metav1.ConditionTrue && vm.Status.Phase == v1alpha1.VirtualMachineRunning
	})
}

func (s *site) succeeds(vm *v1alpha1.VirtualMachine, name string, spec v1alpha1.VirtualMachineOperationSpec) {
	s.Helper()
	spec.VirtualMachineName = vm.Name
	op := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: name}, Spec: spec}
	s.Must(s.Create(s.Context(), op))
	s.Until("operation "+name+" has succeeded", func() (string, bool) {
		s.read(op)
		return fmt.Sprintf("%+v", op.Status), op.Status.Phase == v1alpha1.OperationCompleted
	})
}
