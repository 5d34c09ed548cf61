package claims

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

var (
	machineNames = []string{"m-0", "m-1"}
	diskNames    = []string{"data", "web"}
	foreignNames = []string{"f-0", "f-1"}
	cloneNames   = []string{"c-0", "m-0"}
)

func (m *model) draw(of []string, label string) string { return rapid.SampledFrom(of).Draw(m.T, label) }
func (m *model) flip(label string) bool                { return rapid.Bool().Draw(m.T, label) }

// anyVM returns a KubeVirt VirtualMachine that is there, or nil.
func (m *model) anyVM() *virtv1.VirtualMachine {
	all := m.vms()
	if len(all) == 0 {
		return nil
	}
	return &all[rapid.IntRange(0, len(all)-1).Draw(m.T, "KubeVirt VM")]
}

func (m *model) anyClaim() string {
	all := m.claims()
	if len(all) == 0 {
		return "root"
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(m.T, "claim")].Name
}

// anyVolume is the name of a volume, which may look like one of ours.
func (m *model) anyVolume() string {
	names := []string{"root", "disk-0"}
	for _, d := range m.disks() {
		names = append(names, volumes.VolumeOf(d.UID))
	}
	return m.draw(names, "volume")
}

// drawRefs are the disks that a machine is to have.
func (m *model) drawRefs() (all []v1alpha1.BlockDeviceRef) {
	for _, name := range diskNames {
		if m.flip("names " + name) {
			all = append(all, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: name})
		}
	}
	return all
}

func (m *model) drawPolicy() v1alpha1.RunPolicy {
	return rapid.SampledFrom([]v1alpha1.RunPolicy{
		v1alpha1.RunPolicyAlwaysOn, v1alpha1.RunPolicyAlwaysOnUnlessStoppedManually, v1alpha1.RunPolicyAlwaysOff,
	}).Draw(m.T, "policy")
}

// machine makes a VirtualMachine that creates or adopts one of KubeVirt, if there is none of that name.
func (m *model) machine() {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: meta(m.draw(machineNames, "machine"))}
	if m.Get(m.ctx, client.ObjectKeyFromObject(vm), vm) == nil {
		return
	}
	of := &v1alpha1.KubeVirtRuntime{}
	if m.flip("creates") {
		of.Create = &v1alpha1.KubeVirtMachine{}
		if m.flip("has a disk of its own") {
			of.Create.Disks = []v1alpha1.KubeVirtDisk{{Name: m.anyVolume(), PersistentVolumeClaim: m.anyClaim()}}
		}
		vm.Spec.Memory = new(resource.MustParse("64Mi"))
	} else {
		of.Name = m.draw(append(foreignNames, cloneNames...), "adopts")
	}
	vm.Spec.RunPolicy, vm.Spec.BlockDeviceRefs, vm.Spec.Runtime.KubeVirt = m.drawPolicy(), m.drawRefs(), of
	m.must(m.Create(m.ctx, vm))
}

// disk makes a VirtualDisk, if there is none of that name.
func (m *model) disk() {
	d := &v1alpha1.VirtualDisk{ObjectMeta: meta(m.draw(diskNames, "disk"))}
	if m.Get(m.ctx, client.ObjectKeyFromObject(d), d) == nil {
		return
	}
	d.Spec = v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{KubeVirt: &v1alpha1.VolumeDisk{}}}
	m.must(m.Create(m.ctx, d))
}

// anyObject returns a VirtualMachine or a VirtualDisk that is there, or nil.
func (m *model) anyObject() client.Object {
	var all []client.Object
	for _, vm := range m.machines() {
		all = append(all, &vm)
	}
	for _, d := range m.disks() {
		all = append(all, &d)
	}
	if len(all) == 0 {
		return nil
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(m.T, "object")]
}

func (m *model) deleteObject() {
	if o := m.anyObject(); o != nil {
		m.must(m.Delete(m.ctx, o))
	}
}

// lose deletes a VirtualMachine or VirtualDisk that Sallyport learns nothing of, as before a restore of a backup.
func (m *model) lose() {
	if o := m.anyObject(); o != nil {
		o.SetFinalizers(nil)
		if m.must(m.Update(m.ctx, o)); o.GetDeletionTimestamp().IsZero() {
			m.must(m.Delete(m.ctx, o))
		}
	}
}

// decide says what is to happen with what there is for an earlier object.
func (m *model) decide() {
	if o := m.anyObject(); o != nil {
		what := m.draw([]string{v1alpha1.AnnotationTakeOver, v1alpha1.AnnotationMakeAnew}, "decision")
		o.SetAnnotations(map[string]string{what: string(o.GetUID())})
		m.must(m.Update(m.ctx, o))
	}
}

// respec changes which disks a machine is to have, and when it is to be on.
func (m *model) respec() {
	vm := &v1alpha1.VirtualMachine{}
	if m.Get(m.ctx, key(m.draw(machineNames, "machine")), vm) == nil {
		vm.Spec.BlockDeviceRefs, vm.Spec.RunPolicy = m.drawRefs(), m.drawPolicy()
		m.must(m.Update(m.ctx, vm))
	}
}

// foreign makes a machine of KubeVirt that is a user's.
func (m *model) foreign() {
	name := m.draw(foreignNames, "name")
	if m.vm(name) != nil {
		return
	}
	vm := &virtv1.VirtualMachine{ObjectMeta: meta(name)}
	strategy := rapid.SampledFrom([]virtv1.VirtualMachineRunStrategy{virtv1.RunStrategyAlways, virtv1.RunStrategyHalted, virtv1.RunStrategyManual}).Draw(m.T, "strategy")
	vm.Spec.RunStrategy, vm.Spec.Template = &strategy, &virtv1.VirtualMachineInstanceTemplateSpec{}
	v, d := newVolume(m.anyVolume(), m.anyClaim(), m.flip("shared"))
	spec := &vm.Spec.Template.Spec
	spec.Volumes, spec.Domain.Devices.Disks = []virtv1.Volume{v}, []virtv1.Disk{d}
	m.must(m.Create(m.ctx, vm))
}

// ours reports whether a VirtualMachine has the machine of KubeVirt, or may have it in a moment.
func (m *model) ours(vm *virtv1.VirtualMachine) bool {
	for _, o := range m.machines() {
		if string(o.UID) == vm.Labels[kubevirt.LabelMachine] && (o.Status.InstanceID == "" || o.Status.InstanceID == vm.Name) {
			return true
		}
	}
	return false
}

// virtctl starts or stops a machine of a user, or deletes it.
func (m *model) virtctl() {
	vm := m.anyVM()
	if vm == nil || m.ours(vm) {
		return
	}
	verb := m.draw([]string{"start", "stop", "delete"}, "virtctl")
	strategy, _ := vm.RunStrategy()
	vmi := m.instance(vm.Name)
	switch {
	case verb == "delete":
		m.must(m.Delete(m.ctx, vm))
	case strategy != virtv1.RunStrategyManual:
		vm.Spec.RunStrategy = new(map[string]virtv1.VirtualMachineRunStrategy{"start": virtv1.RunStrategyAlways, "stop": virtv1.RunStrategyHalted}[verb])
		m.must(m.Update(m.ctx, vm))
	case verb == "start" && vmi == nil:
		vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
		m.must(m.Status().Update(m.ctx, vm))
	case verb == "stop" && vmi != nil:
		vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StopRequest, UID: &vmi.UID}}
		m.must(m.Status().Update(m.ctx, vm))
	}
}

// restore begins KubeVirt's restore of a machine that is off, or ends it: each volume gets a new claim, or its claim gets the machine for owner.
func (m *model) restore() {
	vm := m.anyVM()
	switch {
	case vm == nil || m.instance(vm.Name) != nil || starts(vm):
		return
	case vm.Status.RestoreInProgress == nil:
		vm.Status.RestoreInProgress = new("restore")
		if m.must(m.Status().Update(m.ctx, vm)); m.flip("takes a while") {
			return
		}
	}
	m.endRestore(vm)
}

func (m *model) endRestore(vm *virtv1.VirtualMachine) {
	m.uids++
	of := &snapshotv1.VirtualMachineRestore{ObjectMeta: meta(fmt.Sprintf("restore-%d", m.uids)), Status: &snapshotv1.VirtualMachineRestoreStatus{Complete: new(true)}}
	of.Spec.Target = corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: vm.Name}
	inPlace := m.flip("in place")
	for _, v := range vm.Spec.Template.Spec.Volumes {
		source := v.PersistentVolumeClaim
		if c := (&corev1.PersistentVolumeClaim{}); inPlace && m.Get(m.ctx, key(source.ClaimName), c) == nil {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: vm.Name, UID: vm.UID}}
			m.must(m.Update(m.ctx, c))
		} else if !inPlace {
			source.ClaimName = of.Name + "-" + v.Name
			m.claim(source.ClaimName)
		}
		of.Status.Restores = append(of.Status.Restores, snapshotv1.VolumeRestore{VolumeName: v.Name, PersistentVolumeClaimName: source.ClaimName})
	}
	m.must(m.Update(m.ctx, vm))
	vm.Status.RestoreInProgress = nil
	m.must(m.Status().Update(m.ctx, vm))
	m.must(m.Create(m.ctx, of))
}

// clone copies a machine of KubeVirt with its labels and annotations, or without them, on its claims or on new ones.
func (m *model) clone() {
	vm, name := m.anyVM(), m.draw(cloneNames, "clone")
	if vm == nil || m.vm(name) != nil {
		return
	}
	c := &virtv1.VirtualMachine{ObjectMeta: meta(name), Spec: *vm.Spec.DeepCopy()}
	if m.flip("with labels") {
		c.Labels, c.Annotations = vm.Labels, vm.Annotations
	}
	if m.flip("with new claims") {
		m.uids++
		for _, v := range c.Spec.Template.Spec.Volumes {
			v.PersistentVolumeClaim.ClaimName = fmt.Sprintf("clone-%d-%s", m.uids, v.Name)
			m.claim(v.PersistentVolumeClaim.ClaimName)
		}
	}
	c.Spec.Running, c.Spec.RunStrategy = nil, new(virtv1.RunStrategyHalted)
	m.must(m.Create(m.ctx, c))
}

// strip removes the labels or the annotations of a machine of KubeVirt.
func (m *model) strip() {
	vm := m.anyVM()
	if vm == nil {
		return
	}
	ours := func(k, _ string) bool { return strings.HasPrefix(k, "sallyport.dev/") }
	if m.flip("labels") {
		maps.DeleteFunc(vm.Labels, ours)
	} else {
		maps.DeleteFunc(vm.Annotations, ours)
	}
	m.must(m.Update(m.ctx, vm))
}

// relabel has a claim look like that of some VirtualDisk, or of none.
func (m *model) relabel() {
	c, uids := &corev1.PersistentVolumeClaim{}, []types.UID{""}
	for _, d := range m.disks() {
		uids = append(uids, d.UID)
	}
	uid := rapid.SampledFrom(uids).Draw(m.T, "label")
	if m.Get(m.ctx, key(m.anyClaim()), c) != nil {
		return
	}
	c.Labels = nil
	if uid != "" {
		c.Labels = map[string]string{volumes.LabelDisk: string(uid)}
	}
	m.must(m.Update(m.ctx, c))
}
