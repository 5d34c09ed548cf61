//go:build cdi

package cdi

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// machines has machines made from images, of each StorageClass, in the namespace of the image and in another one.
func (s *site) machines() {
	for _, of := range []struct {
		name, storage string
		elsewhere     bool
	}{
		{name: "folder", storage: class},
		{name: "folder-elsewhere", storage: class, elsewhere: true},
		{name: "device", storage: blockClass},
		{name: "device-elsewhere", storage: blockClass, elsewhere: true},
		{name: "late", storage: lateClass},
		{name: "late-elsewhere", storage: lateClass, elsewhere: true},
	} {
		s.Run(of.name, func(t *testing.T) {
			t.Parallel()
			s.in(t).machine("machines-"+of.name, of.storage, of.elsewhere)
		})
	}
}

func (s *site) machine(ns, storage string, elsewhere bool) {
	s.namespace(ns)
	i := image(ns, "ubuntu")
	i.Spec.StorageClass, i.Spec.SnapshotClass, i.Spec.Checksum = storage, class, checksumOf(data(ns))
	where := ns
	if elsewhere {
		where += "-user"
		s.namespace(where)
		i.Spec.AllowedNamespaces.From = v1alpha1.VMDiskImageFromAll
	}
	s.Must(s.Create(s.Context(), i))
	s.shows(i, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
	if !bytes.Equal(s.claimed(ns, i.Status.Claim.Name), data(ns)) {
		s.Error("the claim of the image has other data than the source")
	}
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: where, Name: "web"}, Spec: v1alpha1.VirtualMachineSpec{
		RunPolicy: v1alpha1.RunPolicyAlwaysOn, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
		DiskImage: &v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Namespace: ns, Name: "ubuntu"}},
	}}
	s.Must(s.Create(s.Context(), vm))
	s.booted(vm, storage)
	if elsewhere {
		s.returned(where)
	}
	s.kubectl("delete", "vmdi", "ubuntu", "-n", ns, "--wait=false")
	s.shows(i, v1alpha1.VMDiskImageTerminating, v1alpha1.ReasonTerminating)
	s.Eventually("the image says how many disks use it", func() bool {
		s.read(i)
		refs := i.Status.References
		return refs != nil && refs.Count == 1 && (refs.Elsewhere == 1) == elsewhere
	})
	if !bytes.Equal(s.claimed(ns, i.Status.Claim.Name), data(ns)) {
		s.Error("the data of an image that is used is gone")
	}
	s.kubectl("delete", "virtualmachines.sallyport.dev", "web", "-n", where, "--timeout=2m")
	s.Eventually("the image is gone", func() bool { return !s.read(i) })
	s.empty(ns)
	s.empty(where)
}

// booted waits until the Pod of the machine has a claim with the data of the image.
func (s *site) booted(vm *v1alpha1.VirtualMachine, storage string) {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	s.Until("the Pod of the machine has a bound claim", func() (string, bool) {
		s.read(vm)
		var pods corev1.PodList
		s.Must(s.List(s.Context(), &pods, client.InNamespace(vm.Namespace)))
		for _, pod := range pods.Items {
			for _, v := range append(pod.Spec.Volumes, corev1.Volume{}) {
				if v.PersistentVolumeClaim != nil && metav1.IsControlledBy(&pod, vm) {
					claim.Namespace, claim.Name = vm.Namespace, v.PersistentVolumeClaim.ClaimName
					s.read(claim)
				}
			}
		}
		return fmt.Sprintf("%+v, claim %+v, %d Pods", vm.Status, claim.Status, len(pods.Items)), claim.Status.Phase == corev1.ClaimBound
	})
	if from := claim.Spec.DataSource; from == nil || from.Kind != "VolumeSnapshot" || *claim.Spec.StorageClassName != storage ||
		(*claim.Spec.VolumeMode == corev1.PersistentVolumeBlock) != (storage == blockClass) {
		s.Errorf("the claim is %+v", claim.Spec)
	}
	if of := vm.Spec.DiskImage.Ref.Namespace; !bytes.Equal(s.claimed(claim.Namespace, claim.Name), data(of)) {
		s.Error("the claim of the machine has other data than the source")
	}
}

// returned waits until nothing is left of what a copy into a namespace was made with.
func (s *site) returned(namespace string) {
	s.Helper()
	s.Until("the snapshot of the copy is gone", func() (string, bool) {
		var snapshots snapshotv1.VolumeSnapshotList
		s.Must(s.List(s.Context(), &snapshots, client.InNamespace(namespace)))
		var contents snapshotv1.VolumeSnapshotContentList
		s.Must(s.List(s.Context(), &contents))
		left := []string{}
		for _, content := range contents.Items {
			if content.Spec.VolumeSnapshotRef.Namespace == namespace {
				left = append(left, content.Name)
			}
		}
		return fmt.Sprintf("%d VolumeSnapshots, contents %s", len(snapshots.Items), strings.Join(left, ", ")), len(snapshots.Items)+len(left) == 0
	})
}
