package kubevirt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeapi "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// gate is subresources of a KubeVirt with a feature gate, or none, which answer to dry runs.
type gate string

func (g gate) Put(_ context.Context, resource string, object types.NamespacedName, subresource string, options any) error {
	remove, is := options.(*virtv1.RemoveVolumeOptions)
	switch {
	case !is || subresource != "removevolume" || !slices.Equal(remove.DryRun, []string{metav1.DryRunAll}):
		return apierrors.NewInternalError(fmt.Errorf("%s of %s with %+v", subresource, object, options))
	case g == "":
		return apierrors.NewBadRequest("Enable HotplugVolumes feature gate to use this API.")
	case g == declarative && resource == "virtualmachineinstances":
		return apierrors.NewBadRequest("VMI ns/vm is owned by a VM")
	}
	return apierrors.NewConflict(virtv1.Resource("virtualmachine"), object.Name, errors.New("it does not exist"))
}

const (
	imperative  gate = "HotplugVolumes"
	declarative gate = "DeclarativeHotplugVolumes"
)

// withDisks returns a runtime with disks that exist.
func withDisks(t *testing.T, names []string, objects ...client.Object) (*kubevirt.Runtime, []runtime.Disk) {
	t.Helper()
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{virtv1.AddToScheme, snapshotv1.AddToScheme, v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api := fakeapi.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&virtv1.VirtualMachine{}).Build()
	r, disks := &kubevirt.Runtime{Client: api, Live: api, Subresources: imperative}, []runtime.Disk{}
	for _, name := range names {
		d := runtime.Disk{
			NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}, UID: types.UID("uid-" + name),
			Spec: &v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{KubeVirt: &v1alpha1.VolumeDisk{}}},
		}
		var err error
		if d.ID, err = r.EnsureDisk(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		disks = append(disks, d)
	}
	return r, disks
}

func readVM(t *testing.T, r *kubevirt.Runtime, name string) *virtv1.VirtualMachine {
	t.Helper()
	vm := &virtv1.VirtualMachine{}
	if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, vm); err != nil {
		t.Fatal(err)
	}
	return vm
}

// A created machine boots from its VirtualDisks as its spec says, before its own disks, also after the spec has changed.
func TestBootOrder(t *testing.T) {
	r, disks := withDisks(t, []string{"root", "second", "data"})
	m := runtime.Machine{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}, UID: "uid", Spec: &v1alpha1.VirtualMachineSpec{
		Memory: new(resource.MustParse("64Mi")),
		BlockDeviceRefs: []v1alpha1.BlockDeviceRef{
			{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "data"},
			{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "second", BootOrder: new(int32(7))},
			{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "root", BootOrder: new(int32(2))},
		},
		Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Create: &v1alpha1.KubeVirtMachine{
			Disks: []v1alpha1.KubeVirtDisk{{Name: "tools", ContainerDisk: "tools"}, {Name: "other", ContainerDisk: "other"}},
		}}},
	}}
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for i, d := range disks {
		for range 2 {
			if err := r.Attach(t.Context(), m, d); err != nil {
				t.Fatal(err)
			}
		}
		m.Disks = disks[:i+1]
	}
	shows := func(want map[string]string) {
		t.Helper()
		spec, got := readVM(t, r, "web").Spec.Template.Spec, map[string]string{}
		for i, d := range spec.Domain.Devices.Disks {
			how := string(d.Disk.Bus)
			if d.BootOrder != nil {
				how += " " + resource.NewQuantity(int64(*d.BootOrder), resource.DecimalSI).String()
			}
			if claim := spec.Volumes[i].PersistentVolumeClaim; claim != nil && claim.Hotpluggable {
				how += " hot"
			}
			got[d.Name] = strings.TrimSpace(how)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want := map[string]string{"disk-uid-root": "virtio 1", "disk-uid-second": "virtio 2", "disk-uid-data": "scsi hot", "tools": "3", "other": "4"}
	shows(want)
	m.Spec.BlockDeviceRefs[2].BootOrder = nil
	if err := r.PowerOn(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	want["disk-uid-root"], want["disk-uid-second"], want["tools"], want["other"] = "virtio", "virtio 1", "2", "3"
	shows(want)
}

// A machine has the disks that Attach gave it. What another client has added stays where it is.
func TestDisksOfOthers(t *testing.T) {
	theirs := newVM(func(vm *virtv1.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes = []virtv1.Volume{volumeOf("theirs", "data-uid-data", false), volumeOf("more", "more", true)}
	})
	theirs.Name = "theirs"
	r, disks := withDisks(t, []string{"data", "free"}, newVM(func(*virtv1.VirtualMachine) {}), theirs)
	m := adopted()
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if seen, err := r.ObserveDisk(t.Context(), disks[0]); err != nil || !slices.Equal(seen.AttachedTo, []string{"KubeVirt VirtualMachine theirs"}) {
		t.Errorf("got %+v, %v", seen, err)
	}
	if err := r.DeleteDisk(t.Context(), disks[0]); !runtime.IsInvalidState(err) {
		t.Errorf("deleting: got %v", err)
	}
	m.Disks = disks
	if err := r.Attach(t.Context(), m, disks[0]); runtime.Reason(err) != v1alpha1.ReasonDiskInUse || !strings.Contains(err.Error(), "KubeVirt VirtualMachine theirs") {
		t.Errorf("attaching: got %v", err)
	}
	vm := readVM(t, r, "vm")
	vm.Spec.Template.Spec.Volumes = []virtv1.Volume{volumeOf("mine", "free-uid-free", false)}
	if err := r.Client.Update(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	if err := r.Attach(t.Context(), m, disks[1]); !runtime.IsInvalidState(err) || !strings.Contains(err.Error(), "another client has added") {
		t.Errorf("attaching what another client has added: got %v", err)
	}
	if err := r.Detach(t.Context(), m, disks[1].UID); err != nil {
		t.Errorf("detaching it: %v", err)
	}
	if seen, err := r.Observe(t.Context(), m); err != nil || len(seen.Disks) > 0 || len(readVM(t, r, "vm").Spec.Template.Spec.Volumes) != 1 {
		t.Errorf("got %+v, %v", seen, err)
	}
}

// volumeOf returns the volume of a claim.
func volumeOf(name, claim string, hot bool) virtv1.Volume {
	return virtv1.Volume{Name: name, VolumeSource: virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}, Hotpluggable: hot,
	}}}
}

// What KubeVirt does with the disks of a machine that is on.
func TestPlugging(t *testing.T) {
	const volume, claim = "disk-uid-data", "data-uid-data"
	status := func(phase virtv1.VolumePhase) []virtv1.VolumeStatus {
		return []virtv1.VolumeStatus{{
			Name: volume, Phase: phase, Message: "PVC " + claim + " is pending", HotplugVolume: &virtv1.HotplugVolumeStatus{},
			PersistentVolumeClaimInfo: &virtv1.PersistentVolumeClaimInfo{ClaimName: claim},
		}}
	}
	in := []virtv1.Volume{volumeOf(volume, claim, true)}
	const changes = "changes it"
	for what, tc := range map[string]struct {
		requests  []virtv1.VirtualMachineVolumeRequest
		template  []virtv1.Volume
		instance  []virtv1.Volume
		status    []virtv1.VolumeStatus
		has, busy bool
		attach    string // whether it changes the machine, or what the error says
		detach    string
	}{
		"not there": {attach: changes},
		"requested": {
			requests: []virtv1.VirtualMachineVolumeRequest{{AddVolumeOptions: &virtv1.AddVolumeOptions{
				Name: volume, VolumeSource: &virtv1.HotplugVolumeSource{PersistentVolumeClaim: in[0].PersistentVolumeClaim},
			}}},
			has: true, busy: true, detach: "is being attached",
		},
		"being plugged in": {template: in, instance: in, status: status(virtv1.HotplugVolumeAttachedToNode), has: true, busy: true, detach: "is being attached"},
		"not noticed yet":  {template: in, instance: in, has: true, busy: true, detach: "is being attached"},
		"waits for ever":   {template: in, instance: in, status: status(virtv1.VolumePending), has: true, detach: changes},
		"plugged in":       {template: in, instance: in, status: status(virtv1.VolumeReady), has: true, detach: changes},
		"to be removed": {
			requests: []virtv1.VirtualMachineVolumeRequest{{RemoveVolumeOptions: &virtv1.RemoveVolumeOptions{Name: volume}}},
			template: in, instance: in, status: status(virtv1.VolumeReady), has: true, busy: true, attach: "is being detached",
		},
		"being unplugged":       {status: status(virtv1.HotplugVolumeDetaching), has: true, busy: true, attach: "is being detached"},
		"a disk it booted from": {template: []virtv1.Volume{volumeOf(volume, claim, false)}, instance: []virtv1.Volume{volumeOf(volume, claim, false)}, has: true, detach: "while the machine is off"},
	} {
		t.Run(what, func(t *testing.T) {
			vmi := instance()
			vmi.Spec.Volumes, vmi.Status.VolumeStatus = tc.instance, tc.status
			r, disks := withDisks(t, []string{"data"}, vmi, newVM(func(vm *virtv1.VirtualMachine) {
				vm.Spec.Template.Spec.Volumes, vm.Status.VolumeRequests = tc.template, tc.requests
				vm.Labels = map[string]string{kubevirt.LabelMachine: "uid-web"}
			}))
			m := adopted()
			m.Disks = disks
			seen, err := r.Observe(t.Context(), m)
			if err != nil || len(seen.Disks) == 1 != tc.has {
				t.Errorf("got %+v, %v", seen, err)
			}
			waits := tc.status != nil && tc.status[0].Phase == virtv1.VolumePending
			if waits && !strings.HasSuffix(seen.Plugging, "is pending") || seen.Plugging != "" != (tc.busy || waits) || !seen.Quiet() {
				t.Errorf("what is plugged: %q, in flight: %+v", seen.Plugging, seen.InFlight)
			}
			used, err := r.ObserveDisk(t.Context(), disks[0])
			if err != nil || len(used.AttachedTo) == 1 != (tc.has || tc.busy) {
				t.Errorf("the disk is %+v, %v", used, err)
			}
			for _, r.Subresources = range []kubevirt.Subresources{imperative, declarative} {
				for _, call := range []struct {
					do   func() error
					want string
				}{
					{func() error { return r.Attach(t.Context(), m, disks[0]) }, tc.attach},
					{func() error { return r.Detach(t.Context(), m, disks[0].UID) }, tc.detach},
				} {
					before := readVM(t, r, "vm")
					switch err := call.do(); {
					case err != nil && (call.want == "" || !runtime.IsInvalidState(err) || !strings.Contains(err.Error(), call.want)):
						t.Errorf("with %s: got %v, want %q", r.Subresources, err, call.want)
					case err == nil:
						changed(t, r, before, call.want == changes)
					}
				}
			}
		})
	}
}

// changed checks whether what KubeVirt plugs in has changed, and nothing else, and puts the machine back.
func changed(t *testing.T, r *kubevirt.Runtime, before *virtv1.VirtualMachine, want bool) {
	t.Helper()
	now := readVM(t, r, before.Name)
	declared, requested := before.Spec.Template.Spec, before.Status.VolumeRequests
	if is := len(now.Status.VolumeRequests) != len(requested); is != (want && r.Subresources == imperative) {
		t.Errorf("with %s, the requests are %+v", r.Subresources, now.Status.VolumeRequests)
	}
	if is := len(now.Spec.Template.Spec.Volumes) != len(declared.Volumes); is != (want && r.Subresources == declarative) {
		t.Errorf("with %s, the volumes are %+v", r.Subresources, now.Spec.Template.Spec.Volumes)
	}
	now.Spec.Template.Spec = declared
	err := r.Client.Update(t.Context(), now)
	now.Status.VolumeRequests = requested
	if err := errors.Join(err, r.Client.Status().Update(t.Context(), now)); err != nil {
		t.Fatal(err)
	}
}

// Without a feature gate KubeVirt changes no disks of a machine that is on.
func TestPlugRefused(t *testing.T) {
	r, disks := withDisks(t, []string{"data"}, instance(), newVM(func(vm *virtv1.VirtualMachine) {
		vm.Labels = map[string]string{kubevirt.LabelMachine: "uid-web"}
	}))
	r.Subresources = gate("")
	if err := r.Attach(t.Context(), adopted(), disks[0]); !runtime.IsInvalidState(err) || !strings.Contains(err.Error(), "Enable HotplugVolumes") {
		t.Errorf("got %v", err)
	}
}
