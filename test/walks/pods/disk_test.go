//go:build !race

package pods

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/step"
)

// names changes which disks the spec of the machine names.
func (v *traveller) names(disks ...string) {
	v.Helper()
	v.Until(fmt.Sprintf("spec.blockDeviceRefs names %v", disks), func() (string, bool) {
		v.look()
		v.vm.Spec.BlockDeviceRefs = nil
		for _, name := range disks {
			v.vm.Spec.BlockDeviceRefs = append(v.vm.Spec.BlockDeviceRefs, v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: name})
		}
		err := stack.Client.Update(v.Context(), v.vm)
		return fmt.Sprint(err), err == nil
	})
}

// disksAre waits until DisksAttached of the machine has that reason, and gives its message.
func (v *traveller) disksAre(reason v1alpha1.ConditionReason) (message string) {
	v.Helper()
	v.Until("DisksAttached has the reason "+string(reason), func() (string, bool) {
		is := meta.FindStatusCondition(v.look().Conditions, string(v1alpha1.ConditionDisksAttached))
		if is == nil || is.ObservedGeneration != v.vm.Generation {
			return fmt.Sprintf("%+v", is), false
		}
		message = is.Message
		return fmt.Sprintf("%+v", is), is.Reason == string(reason)
	})
	return message
}

// has fails the test unless the Pod of the machine has exactly the claims of these disks.
func (v *traveller) has(disks ...*v1alpha1.VirtualDisk) {
	v.Helper()
	var want, got []string
	for _, d := range disks {
		want = append(want, fmt.Sprintf("%s-%s", d.Name, d.UID))
	}
	for _, volume := range v.site.pod(v.vm).Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			got = append(got, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	if !slices.Equal(want, got) {
		v.Errorf("the Pod has the claims %v and not %v", got, want)
	}
}

func (s *site) disk(name string) *v1alpha1.VirtualDisk {
	s.Helper()
	d := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VirtualDiskSpec{
		Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{StorageClassName: "fast"}},
	}}
	s.create(d)
	return d
}

func (s *site) diskIs(d *v1alpha1.VirtualDisk, phase v1alpha1.VirtualDiskPhase) {
	s.Helper()
	s.Until(fmt.Sprintf("VirtualDisk %s is %s", d.Name, phase), func() (string, bool) {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(d), d))
		return fmt.Sprintf("%+v", d.Status), d.Status.Phase == phase
	})
}

// protects does what the controller manager, which does not run here, does for a claim that is deleted and no Pod uses.
func (s *site) protects(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	s.Must(stack.Client.Patch(s.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// A machine that is a Pod is made with its disks, keeps them through moves, and leaves them to the next one.
func TestDisks(t *testing.T) {
	v := newTraveller(t, "disks")
	cache := &v1alpha1.VirtualDisk{}
	v.Step("a machine waits for its disk", func(s step.T) {
		v.vm = &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "with"}, Spec: v1alpha1.VirtualMachineSpec{
			NodeName: v.node(1), Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
			BlockDeviceRefs: []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "cache"}},
		}}
		v.create(v.vm)
		v.disksAre(v1alpha1.ReasonDiskNotFound)
		if ready := meta.FindStatusCondition(v.vm.Status.Conditions, string(v1alpha1.ConditionReady)); !strings.Contains(ready.Message, "VirtualDisk cache") {
			s.Errorf("Ready says %q", ready.Message)
		}
		cache = v.disk("cache")
		v.shows(v.vm, v1alpha1.VirtualMachineRunning)
		v.disksAre(v1alpha1.ReasonDisksAttached)
		v.has(cache)
		v.diskIs(cache, v1alpha1.VirtualDiskInUse)
		v.remember()
	})
	v.Step("it is moved with the disk", func(step.T) {
		v.wanted(v.node(2))
		v.moved(v.node(2))
		v.has(cache)
	})
	v.Step("another disk comes too late", func(s step.T) {
		other := v.disk("other")
		v.names("cache", "other")
		if message := v.disksAre(v1alpha1.ReasonRuntimeFailed); !strings.Contains(message, "delete VirtualMachine with and create it again") {
			s.Errorf("DisksAttached says %q", message)
		}
		v.names("cache")
		v.disksAre(v1alpha1.ReasonDisksAttached)
		v.diskIs(other, v1alpha1.VirtualDiskAvailable)
		v.has(cache)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.name, Name: other.Status.DiskID}}
		s.Must(stack.Client.Delete(s.Context(), claim))
		v.protects(claim)
		v.diskIs(other, v1alpha1.VirtualDiskLost)
	})
	v.Step("the disk outlives the machine, and goes with its VirtualDisk", func(s step.T) {
		s.Must(stack.Client.Delete(s.Context(), v.vm))
		v.gone(v.vm)
		v.diskIs(cache, v1alpha1.VirtualDiskAvailable)
		v.vm = &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "next"}, Spec: v1alpha1.VirtualMachineSpec{
			Runtime:         v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
			BlockDeviceRefs: []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "cache"}},
		}}
		v.create(v.vm)
		v.shows(v.vm, v1alpha1.VirtualMachineRunning)
		v.has(cache)
		if !slices.Contains(v.look().Disks, v1alpha1.AttachedDisk{Name: "cache", UID: cache.UID}) {
			s.Errorf("the machine shows the disks %v", v.vm.Status.Disks)
		}
		claim := &corev1.PersistentVolumeClaim{}
		s.Must(stack.Client.Get(s.Context(), client.ObjectKey{Namespace: v.name, Name: cache.Status.DiskID}, claim))
		s.Must(stack.Client.Delete(s.Context(), cache))
		v.diskIs(cache, v1alpha1.VirtualDiskTerminating)
		s.Must(stack.Client.Delete(s.Context(), v.vm))
		v.gone(v.vm)
		v.Until("the claim is left to Kubernetes", func() (string, bool) {
			s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(claim), claim))
			return fmt.Sprintf("%+v", claim.ObjectMeta), !claim.DeletionTimestamp.IsZero()
		})
		v.protects(claim)
		v.gone(cache)
		v.gone(claim)
	})
}
