package kubevirt_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// withVolumes returns a machine of KubeVirt with volumes, each with a disk.
func withVolumes(name string, volumes ...virtv1.Volume) *virtv1.VirtualMachine {
	vm := newVM(func(vm *virtv1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Volumes = volumes
		for _, v := range volumes {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, virtv1.Disk{Name: v.Name, DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{}}})
		}
	})
	vm.Name, vm.UID = name, types.UID("uid-of-"+name)
	return vm
}

// on returns a running instance of a machine.
func on(vm *virtv1.VirtualMachine) *virtv1.VirtualMachineInstance {
	vmi := instance()
	vmi.Name, vmi.UID, vmi.Spec = vm.Name, "instance-of-"+vm.UID, vm.Spec.Template.Spec
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)}
	return vmi
}

// A volume whose name and claim look like those of a VirtualDisk is another client's, if no status records it.
func TestVolumesThatLookLikeOurs(t *testing.T) {
	for volume, claim := range map[string]string{"disk-0": "data-0", "disk-1": "web-disk-1", "disk-uid-data": "data-uid-data"} {
		r, disks := withDisks(t, []string{"data"}, withVolumes("vm", volumeOf(volume, claim, false)))
		m := adopted()
		if _, err := r.Ensure(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		seen, err := r.Observe(t.Context(), m)
		if err != nil || len(seen.Disks) > 0 {
			t.Errorf("%s of %s is seen as %+v, %v", volume, claim, seen.Disks, err)
		}
		if err := r.Detach(t.Context(), m, disks[0].UID); err != nil {
			t.Errorf("detaching: %v", err)
		}
		if got := readVM(t, r, "vm").Spec.Template.Spec.Volumes; len(got) != 1 {
			t.Errorf("the volumes are %+v", got)
		}
	}
}

// A disk that was made anew is not the one whose claim the machine still has.
func TestDiskMadeAnew(t *testing.T) {
	r, disks := withDisks(t, []string{"data"}, withVolumes("vm", volumeOf("disk-former", "data-former", false)))
	m := adopted()
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m = m.With(disks[0])
	if seen, err := r.Observe(t.Context(), m); err != nil || len(seen.Disks) > 0 {
		t.Errorf("the machine has %+v, %v", seen.Disks, err)
	}
	if err := r.Attach(t.Context(), m, disks[0]); err != nil {
		t.Fatal(err)
	}
	seen, err := r.Observe(t.Context(), m)
	if volumes := readVM(t, r, "vm").Spec.Template.Spec.Volumes; err != nil || len(seen.Disks) != 1 || len(volumes) != 2 {
		t.Errorf("the machine has %+v, %v, in the volumes %+v", seen.Disks, err, volumes)
	}
}

// Two machines are never on with one claim to which one of them writes.
func TestOneWriterOfAClaim(t *testing.T) {
	const claim = "root"
	vm := func(name string, edit ...func(*virtv1.VirtualMachine)) *virtv1.VirtualMachine {
		vm := withVolumes(name, volumeOf("root", claim, false))
		for _, e := range edit {
			e(vm)
		}
		return vm
	}
	device := func(edit func(*virtv1.Disk)) func(*virtv1.VirtualMachine) {
		return func(vm *virtv1.VirtualMachine) { edit(&vm.Spec.Template.Spec.Domain.Devices.Disks[0]) }
	}
	shared := device(func(d *virtv1.Disk) { d.Shareable = new(true) })
	cd := device(func(d *virtv1.Disk) { d.DiskDevice = virtv1.DiskDevice{CDRom: &virtv1.CDRomTarget{}} })
	ephemeral := func(vm *virtv1.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes[0].VolumeSource = virtv1.VolumeSource{Ephemeral: &virtv1.EphemeralVolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}
	}
	noClaim := func(vm *virtv1.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes[0].VolumeSource = virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{Image: "registry.test/debian:12"}}
	}
	strategy := func(s virtv1.VirtualMachineRunStrategy) func(*virtv1.VirtualMachine) {
		return func(vm *virtv1.VirtualMachine) { vm.Spec.Running, vm.Spec.RunStrategy = nil, &s }
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "importer"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}},
	}}}}
	launcher := pod.DeepCopy()
	launcher.Labels = map[string]string{virtv1.AppLabel: "virt-launcher"}
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	disk := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cache", UID: "uid-cache"},
		Spec:       v1alpha1.VirtualDiskSpec{Runtime: v1alpha1.VirtualDiskRuntime{KubeVirt: &v1alpha1.VolumeDisk{}}},
		Status:     v1alpha1.VirtualDiskStatus{DiskID: claim, AttachedTo: &v1alpha1.DiskHolder{Name: "owner", UID: "uid-owner"}},
	}
	free := disk.DeepCopy()
	free.Status.AttachedTo = nil
	for what, tc := range map[string]struct {
		mine   *virtv1.VirtualMachine
		others []client.Object
		by     string // who has the claim, or "" if the machine is started
	}{
		"nobody has it":                        {mine: vm("vm")},
		"another machine is off":               {mine: vm("vm"), others: []client.Object{vm("b", strategy(virtv1.RunStrategyHalted))}},
		"another machine is on":                {mine: vm("vm"), others: []client.Object{vm("b"), on(vm("b"))}, by: "VirtualMachineInstance b"},
		"an instance without a machine is on":  {mine: vm("vm"), others: []client.Object{on(vm("b"))}, by: "VirtualMachineInstance b"},
		"another machine is to be on":          {mine: vm("vm"), others: []client.Object{vm("b", strategy(virtv1.RunStrategyAlways))}, by: "KubeVirt VirtualMachine b"},
		"another machine is about to be on":    {mine: vm("vm"), others: []client.Object{vm("b", func(vm *virtv1.VirtualMachine) { vm.Status.StateChangeRequests = started })}, by: "KubeVirt VirtualMachine b"},
		"both share it":                        {mine: vm("vm", shared), others: []client.Object{on(vm("b", shared))}},
		"only one shares it":                   {mine: vm("vm", shared), others: []client.Object{on(vm("b"))}, by: "VirtualMachineInstance b"},
		"both read it":                         {mine: vm("vm", cd), others: []client.Object{on(vm("b", cd)), on(vm("c", ephemeral))}},
		"one writes what the other reads":      {mine: vm("vm", ephemeral), others: []client.Object{on(vm("b"))}, by: "VirtualMachineInstance b"},
		"a Pod has it":                         {mine: vm("vm"), others: []client.Object{pod}, by: "Pod importer"},
		"a Pod of an instance has it":          {mine: vm("vm"), others: []client.Object{launcher}},
		"a Pod had it":                         {mine: vm("vm"), others: []client.Object{ended}},
		"it is the disk of a VirtualDisk":      {mine: vm("vm"), others: []client.Object{disk}, by: "VirtualDisk cache, which VirtualMachine owner uses"},
		"it is a VirtualDisk of no machine":    {mine: vm("vm"), others: []client.Object{free}},
		"both have volumes that are no claims": {mine: vm("vm", noClaim), others: []client.Object{on(vm("b", noClaim)), vm("c", noClaim, strategy(virtv1.RunStrategyAlways))}},
		"another machine has another claim":    {mine: vm("vm"), others: []client.Object{on(withVolumes("b", volumeOf("root", "other", false)))}},
		"a hotplugged claim of another machine": {mine: vm("vm"), others: []client.Object{func() client.Object {
			vmi := on(withVolumes("b"))
			vmi.Status.VolumeStatus = []virtv1.VolumeStatus{{Name: "hot", PersistentVolumeClaimInfo: &virtv1.PersistentVolumeClaimInfo{ClaimName: claim}}}
			return vmi
		}()}, by: "VirtualMachineInstance b"},
	} {
		t.Run(what, func(t *testing.T) {
			r, _ := withDisks(t, nil, append(tc.others, tc.mine)...)
			m := adopted()
			if _, err := r.Ensure(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			err := r.PowerOn(t.Context(), m)
			is := len(readVM(t, r, "vm").Status.StateChangeRequests) > 0
			switch {
			case tc.by == "" && (err != nil || !is):
				t.Errorf("it was not started: %v", err)
			case tc.by != "" && (is || runtime.Reason(err) != v1alpha1.ReasonDiskInUse || !strings.Contains(err.Error(), tc.by)):
				t.Errorf("it was started: %t, %v, want %s", is, err, tc.by)
			}
		})
	}
}

var started = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}

// Of two machines with one claim that are started at the same time, one is started.
func TestTwoStartsAtOnce(t *testing.T) {
	r, _ := withDisks(t, nil, withVolumes("a", volumeOf("root", "root", false)), withVolumes("b", volumeOf("root", "root", false)))
	errs := make(chan error)
	for _, name := range []string{"a", "b"} {
		m := adopted()
		m.Name, m.UID, m.Spec = name, types.UID("uid-"+name), m.Spec.DeepCopy()
		m.Spec.Runtime.KubeVirt.Name = name
		if _, err := r.Ensure(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		go func() { errs <- r.PowerOn(t.Context(), m) }()
	}
	first, second := <-errs, <-errs
	if (first == nil) == (second == nil) || runtime.Reason(errors.Join(first, second)) != v1alpha1.ReasonDiskInUse {
		t.Errorf("got %v and %v", first, second)
	}
}

// A claim that any volume of a machine names is not destroyed.
func TestClaimsThatMachinesName(t *testing.T) {
	const claim = "data-uid-data"
	source := corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	for what, v := range map[string]virtv1.VolumeSource{
		"claim":       {PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: source}},
		"DataVolume":  {DataVolume: &virtv1.DataVolumeSource{Name: claim}},
		"ephemeral":   {Ephemeral: &virtv1.EphemeralVolumeSource{PersistentVolumeClaim: &source}},
		"memory dump": {MemoryDump: &virtv1.MemoryDumpVolumeSource{PersistentVolumeClaimVolumeSource: virtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: source}}},
	} {
		r, disks := withDisks(t, []string{"data"}, withVolumes("theirs", virtv1.Volume{Name: "v", VolumeSource: v}))
		if err := r.DeleteDisk(t.Context(), disks[0]); !runtime.IsInvalidState(err) || !strings.Contains(err.Error(), "KubeVirt VirtualMachine theirs") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What KubeVirt has restored is the disk, if its VirtualMachineRestore says so.
func TestRestoredDisk(t *testing.T) {
	const restored = "restore-1-disk-uid-data"
	complete := func(edit func(*snapshotv1.VirtualMachineRestore)) *snapshotv1.VirtualMachineRestore {
		of := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}}
		of.Spec.Target = corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "vm"}
		of.Status = &snapshotv1.VirtualMachineRestoreStatus{
			Complete: new(true), Restores: []snapshotv1.VolumeRestore{{VolumeName: "disk-uid-data", PersistentVolumeClaimName: restored}},
		}
		edit(of)
		return of
	}
	for what, tc := range map[string]struct {
		of  func(*snapshotv1.VirtualMachineRestore)
		new string
	}{
		"restored":                    {of: func(*snapshotv1.VirtualMachineRestore) {}, new: restored},
		"being restored":              {of: func(r *snapshotv1.VirtualMachineRestore) { r.Status.Complete = new(false) }},
		"another machine":             {of: func(r *snapshotv1.VirtualMachineRestore) { r.Spec.Target.Name = "other" }},
		"another volume":              {of: func(r *snapshotv1.VirtualMachineRestore) { r.Status.Restores[0].VolumeName = "root" }},
		"replaced again by a client":  {of: func(r *snapshotv1.VirtualMachineRestore) { r.Status.Restores[0].PersistentVolumeClaimName = "former" }},
		"nothing is known of restore": {of: func(r *snapshotv1.VirtualMachineRestore) { r.Status = nil }},
	} {
		t.Run(what, func(t *testing.T) {
			r, disks := withDisks(t, []string{"data"}, withVolumes("vm", volumeOf("disk-uid-data", restored, false)), complete(tc.of))
			m := adopted()
			if _, err := r.Ensure(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			before := readVM(t, r, "vm").ResourceVersion
			err := r.Attach(t.Context(), m.With(disks[0]), disks[0])
			if !runtime.IsInvalidState(err) || runtime.RestoredTo(err) != tc.new || readVM(t, r, "vm").ResourceVersion != before {
				t.Errorf("got %v", err)
			}
			disks[0].ID = restored
			if seen, err := r.Observe(t.Context(), m.With(disks[0])); err != nil || len(seen.Disks) != 1 {
				t.Errorf("once it is recorded, the machine has %+v, %v", seen.Disks, err)
			}
		})
	}
}

// The claim of another VirtualDisk is not a restored one, whatever a VirtualMachineRestore says.
func TestRestoredToTheClaimOfAnother(t *testing.T) {
	of := &snapshotv1.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}}
	of.Spec.Target = corev1.TypedLocalObjectReference{Kind: "VirtualMachine", Name: "vm"}
	of.Status = &snapshotv1.VirtualMachineRestoreStatus{
		Complete: new(true), Restores: []snapshotv1.VolumeRestore{{VolumeName: "disk-uid-data", PersistentVolumeClaimName: "theirs"}},
	}
	other := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", UID: "uid-other"}}
	other.Status.DiskID = "theirs"
	r, disks := withDisks(t, []string{"data"}, withVolumes("vm", volumeOf("disk-uid-data", "theirs", false)), of, other)
	m := adopted()
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	err := r.Attach(t.Context(), m.With(disks[0]), disks[0])
	if runtime.RestoredTo(err) != "" || runtime.Reason(err) != v1alpha1.ReasonDiskInUse || !strings.Contains(err.Error(), "VirtualDisk other") {
		t.Errorf("got %v", err)
	}
}

// A machine that KubeVirt restored in place owns its claims. A VirtualDisk does not go with it.
func TestClaimOfARestoreInPlace(t *testing.T) {
	for what, forget := range map[string]func(*kubevirt.Runtime, runtime.Machine, runtime.Disk) error{
		"the machine is deleted": func(r *kubevirt.Runtime, m runtime.Machine, _ runtime.Disk) error { return r.Delete(t.Context(), m) },
		"the disk is looked at": func(r *kubevirt.Runtime, _ runtime.Machine, d runtime.Disk) error {
			seen, err := r.ObserveDisk(t.Context(), d)
			if !seen.Owned {
				t.Error("it is not seen to be owned")
			}
			_, again := r.EnsureDisk(t.Context(), d)
			return errors.Join(err, again)
		},
	} {
		vm := withVolumes("web", volumeOf("disk-uid-data", "data-uid-data", false))
		vm.Labels, vm.Spec.RunStrategy = map[string]string{kubevirt.LabelMachine: "uid-web"}, new(virtv1.RunStrategyManual)
		r, disks := withDisks(t, []string{"data"}, vm)
		m := templated("{}")
		m.UID, m.InstanceID, m.Disks = "uid-web", "web", disks
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: "ns", Name: disks[0].ID}
		if err := r.Live.Get(t.Context(), key, claim); err != nil {
			t.Fatal(err)
		}
		mine := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: "mine"}
		claim.OwnerReferences = []metav1.OwnerReference{mine, *metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)}
		if err := r.Client.Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if err := forget(r, m, disks[0]); err != nil {
			t.Fatal(err)
		}
		if err := r.Live.Get(t.Context(), key, claim); err != nil || !slices.Equal(claim.OwnerReferences, []metav1.OwnerReference{mine}) {
			t.Errorf("%s: the owners are %+v, %v", what, claim.OwnerReferences, err)
		}
	}
}
