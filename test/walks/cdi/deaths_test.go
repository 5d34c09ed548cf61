//go:build cdi

package cdi

import (
	"bytes"
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
)

// moment is a step of an import or of a deletion. What is so then stays so.
type moment struct {
	name string
	is   func(*v1alpha1.VMDiskImage) bool
}

// child reads an object of the first attempt of an image, and reports whether it exists.
func (s *site) child(i *v1alpha1.VMDiskImage, o client.Object) bool {
	s.Helper()
	o.SetNamespace(i.Namespace)
	o.SetName(fmt.Sprintf("vmdi-%s-1", i.UID))
	return s.read(o)
}

// kill kills Sallyport and starts it again. It deletes the lease, which would otherwise be the dead process's until it expires.
func (s *site) kill() {
	s.Helper()
	s.Must(s.release.Kill())
	s.Must(s.Delete(s.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "sallyport-manager"}}))
	s.Must(s.release.Resume(context.WithoutCancel(s.Context()), s.options))
}

// deaths kills Sallyport at each step of an import, of a copy and of a deletion: nothing is imported twice, no data of an image is deleted while
// a disk uses it, and nothing is left.
func (s *site) deaths() {
	volume := func(i *v1alpha1.VMDiskImage) bool { return s.child(i, &cdiv1.DataVolume{}) }
	claim := func(i *v1alpha1.VMDiskImage) bool { return s.child(i, &corev1.PersistentVolumeClaim{}) }
	snapshot := func(i *v1alpha1.VMDiskImage) bool { return s.child(i, &snapshotv1.VolumeSnapshot{}) }
	images := s.deathsOfImports([]moment{
		{"begun", func(i *v1alpha1.VMDiskImage) bool { return i.Status.Attempt != nil }},
		{"volume", volume}, {"claim", claim},
		{"followed", func(i *v1alpha1.VMDiskImage) bool {
			return i.Status.Attempt != nil && i.Status.Attempt.DataVolumeUID != ""
		}},
		{"imported", func(i *v1alpha1.VMDiskImage) bool { return i.Status.Claim != nil }},
		{"snapshot", snapshot},
		{"ready", func(i *v1alpha1.VMDiskImage) bool { return i.Status.Phase == v1alpha1.VMDiskImageReady }},
	})
	s.deathsOfACopy(images[0])
	for n, m := range []moment{
		{"requested", func(*v1alpha1.VMDiskImage) bool { return true }},
		{"no snapshot", func(i *v1alpha1.VMDiskImage) bool { return !snapshot(i) }},
		{"no volume", func(i *v1alpha1.VMDiskImage) bool { return !volume(i) }},
		{"no claim", func(i *v1alpha1.VMDiskImage) bool { return !claim(i) }},
	} {
		s.Must(s.Delete(s.Context(), images[n+1]))
		s.Eventually(m.name, func() bool { return m.is(images[n+1]) })
		s.kill()
	}
	for _, i := range images[5:] {
		s.Must(s.Delete(s.Context(), i))
	}
	for _, i := range images {
		s.Eventually("image "+i.Namespace+" is gone", func() bool { return !s.read(i) })
		s.empty(i.Namespace)
	}
}

// deathsOfImports imports an image for each moment, and kills Sallyport then.
func (s *site) deathsOfImports(moments []moment) (images []*v1alpha1.VMDiskImage) {
	s.Helper()
	for _, m := range moments {
		ns := "death-" + m.name
		s.namespace(ns)
		i := image(ns, "ubuntu")
		s.Must(s.Create(s.Context(), i))
		s.Until(m.name, func() (string, bool) {
			s.read(i)
			return fmt.Sprintf("%+v", i.Status), m.is(i)
		})
		s.kill()
		images = append(images, i)
	}
	for _, i := range images {
		s.shows(i, v1alpha1.VMDiskImageReady, v1alpha1.ReasonImageReady)
		if !bytes.Equal(s.claimed(i.Namespace, i.Status.Claim.Name), data(i.Namespace)) || i.Status.Attempt.Number != 1 || i.Status.Attempt.RestartCount != 0 {
			s.Errorf("image %s has other data, or was imported again: %+v", i.Namespace, i.Status)
		}
	}
	return images
}

// deathsOfACopy kills Sallyport while a disk is copied, while its image waits for it, and when the disk is deleted.
func (s *site) deathsOfACopy(i *v1alpha1.VMDiskImage) {
	s.Helper()
	disk := s.newDisk(i.Namespace, "data", i.Name)
	s.Eventually("the disk references the image", func() bool { s.read(disk); return disk.Status.Image != nil })
	s.kill()
	s.diskIsReady(disk)
	if !bytes.Equal(s.copied(i.Namespace), data(i.Namespace)) {
		s.Error("the claim of the disk has other data than the source")
	}
	s.Must(s.Delete(s.Context(), i))
	s.kill()
	s.terminates(i)
	s.Must(s.Delete(s.Context(), disk))
	s.kill()
}
