//go:build !race

package pods

import (
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
)

// grant allows a user to do something in a namespace.
func (s *imageSite) grant(namespace, name string, to rbacv1.Subject, rule rbacv1.PolicyRule) {
	s.Helper()
	at := metav1.ObjectMeta{Namespace: namespace, Name: name}
	s.Must(s.Create(s.Context(), &rbacv1.Role{ObjectMeta: at, Rules: []rbacv1.PolicyRule{rule}}))
	s.Must(s.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: at, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{to},
	}))
}

// abroad has a user without many rights create a machine that boots from an image of another namespace, with a template.
func (s *imageSite) abroad() {
	s.Helper()
	const shared = "shared"
	s.Must(s.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shared}}))
	s.Must(s.Create(s.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: "s3", Annotations: map[string]string{v1alpha1.AnnotationAllowedHosts: "s3.example.org"}},
		StringData: map[string]string{"accessKeyId": "a", "secretKey": "b"},
	}))
	bob := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "bob"}
	reads := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"s3"}, Verbs: []string{"get"}}
	s.grant(shared, "sallyport", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: install.Namespace, Name: "sallyport"}, reads)
	s.grant(namespace, "machines", bob, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"virtualmachines"}, Verbs: []string{"create"},
	})
	config := rest.CopyConfig(s.Plane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: bob.Name, Groups: []string{"system:authenticated"}}
	as, err := client.New(config, client.Options{Scheme: s.Scheme()})
	s.Must(err)

	vm := booting("far", v1alpha1.MachineDiskImage{
		Ref: v1alpha1.VMDiskImageReference{Name: "sample", Namespace: shared}, Mode: v1alpha1.CreateIfNotExist,
		Template: &v1alpha1.VMDiskImageTemplate{
			URL: "https://s3.example.org/images/sample.qcow2", SourceType: v1alpha1.VMDiskImageS3, DiskSize: resource.MustParse("2Gi"),
			SecretRef: &v1alpha1.VMDiskImageSecretReference{Name: "s3"}, StorageClass: "fast", SnapshotClass: "snap",
		},
	})
	denied := func(text string) {
		s.Helper()
		if err := as.Create(s.Context(), vm.DeepCopy()); err == nil || !strings.Contains(err.Error(), text) {
			s.Errorf("not %q: %v", text, err)
		}
	}
	denied("[images-references/ImageCreationNotAllowed]")
	s.grant(shared, "images", bob, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"vmdiskimages"}, Verbs: []string{"create"},
	})
	denied("[images-references/SecretNotAllowed]")
	s.grant(shared, "secrets", bob, reads)
	s.Must(as.Create(s.Context(), vm))
	s.showsMachine(vm, v1alpha1.VirtualMachineWaitingForImage, v1alpha1.ReasonImageImporting)

	image := image("sample")
	image.Namespace = shared
	s.read(image)
	volume := s.volume(image)
	s.play(volume)
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: volume.Name}}
	s.Eventually("there is a snapshot", func() bool { return s.read(snapshot) })
	content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "content-of-sample"}, Spec: snapshotv1.VolumeSnapshotContentSpec{
		VolumeSnapshotRef: corev1.ObjectReference{Namespace: shared, Name: snapshot.Name, UID: snapshot.UID}, Driver: "csi.example.org",
		DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: new("volume-1")},
	}}
	s.Must(s.Create(s.Context(), content))
	content.Status = &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: new("snapshot-1"), ReadyToUse: new(true)}
	s.Must(s.Status().Update(s.Context(), content))
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{
		ReadyToUse: new(true), RestoreSize: new(resource.MustParse("2Gi")), BoundVolumeSnapshotContentName: &content.Name,
	}
	s.Must(s.Status().Update(s.Context(), snapshot))

	disk := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "far-boot"}}
	s.Eventually("there is a disk", func() bool { return s.read(disk) })
	local := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "svd-" + string(disk.UID)}}
	lent := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: local.Name}}
	s.Eventually("there is a snapshot in the namespace of the machine", func() bool { return s.read(local) && s.read(lent) })
	if lent.Spec.DeletionPolicy != snapshotv1.VolumeSnapshotContentRetain || *lent.Spec.Source.SnapshotHandle != "snapshot-1" {
		s.Errorf("its content is %+v", lent.Spec)
	}
	local.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true), BoundVolumeSnapshotContentName: &lent.Name}
	s.Must(s.Status().Update(s.Context(), local))
	s.showsMachine(vm, v1alpha1.VirtualMachineRunning, v1alpha1.ReasonImageCopied)
	s.read(disk)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: disk.Status.DiskID}}
	if !s.read(claim) || claim.Spec.DataSource.Name != local.Name || !s.read(local) || *claim.Spec.StorageClassName != "fast" {
		s.Errorf("the claim is %+v", claim)
	}
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: claim.Spec.Resources.Requests}
	s.Must(s.Status().Update(s.Context(), claim))
	s.Eventually("what was made for the copy is gone", func() bool { return !s.read(local) && !s.read(lent) })
	if !s.read(snapshot) || !s.read(content) || !snapshot.DeletionTimestamp.IsZero() {
		s.Error("the snapshot of the image is gone")
	}

	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	s.gone(claim)
	s.gone(disk)
	s.kubectl("delete", "vmdi", image.Name, "-n", shared, "--timeout=2m")
}
