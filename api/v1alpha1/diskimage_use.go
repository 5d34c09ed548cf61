package v1alpha1

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// DiskImageMode says what happens if the VMDiskImage of a machine does not exist.
//
// +kubebuilder:validation:Enum=FailIfNotExist;CreateIfNotExist
type DiskImageMode string

const (
	// FailIfNotExist does not create the image. It is the default.
	FailIfNotExist DiskImageMode = "FailIfNotExist"
	// CreateIfNotExist creates the image from the template.
	CreateIfNotExist DiskImageMode = "CreateIfNotExist"
)

// MachineDiskImage is the VMDiskImage that a machine boots from a copy of.
//
// +kubebuilder:validation:XValidation:rule="self.mode != 'CreateIfNotExist' || has(self.template)",message="spec.diskImage.template is required with mode CreateIfNotExist"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.name) || self.template.name == self.ref.name",message="spec.diskImage.template.name must be the same as spec.diskImage.ref.name, or be left out"
type MachineDiskImage struct {
	// The VMDiskImage.
	// +required
	Ref VMDiskImageReference `json:"ref"`

	// What happens if the VMDiskImage does not exist:
	// FailIfNotExist (the default: the VirtualMachine is denied. If the image is deleted later, the machine waits for it),
	// CreateIfNotExist (the image is created from template, as long as the machine has no disk yet; the requester needs the right to create it).
	// An image that exists is used as it is.
	// +optional
	// +kubebuilder:default=FailIfNotExist
	Mode DiskImageMode `json:"mode,omitempty"`

	// What the image is created from with mode CreateIfNotExist, and the size of the
	// disk.
	// +optional
	Template *VMDiskImageTemplate `json:"template,omitempty"`
}

// VMDiskImageTemplate is what a VMDiskImage is created from. Its fields are those of the spec of a VMDiskImage.
//
// +kubebuilder:validation:XValidation:rule="self.sourceType != 'http' || self.url.startsWith('https://') || self.url.startsWith('http://')",message="template.url must begin with https:// or http:// if template.sourceType is http"
// +kubebuilder:validation:XValidation:rule="self.sourceType != 's3' || self.url.startsWith('https://') || self.url.startsWith('http://') || self.url.startsWith('s3://')",message="template.url must begin with https://, http:// or s3:// if template.sourceType is s3"
// +kubebuilder:validation:XValidation:rule="self.sourceType != 'registry' || self.url.matches('^docker://[^@]+@sha256:[0-9a-f]{64}$')",message="template.url must be docker://HOST/REPOSITORY@sha256:DIGEST if template.sourceType is registry, because a tag can be moved"
// +kubebuilder:validation:XValidation:rule="self.sourceType == 'http' || !has(self.checksum)",message="template.checksum is only allowed with sourceType http: it cannot be verified for s3 (use a presigned https URL), and a registry URL has a digest"
type VMDiskImageTemplate struct {
	// The name of the VMDiskImage: that in ref.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// The source of the image.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+://[!-~]+$`
	URL string `json:"url"`

	// The protocol of the source: http (which includes https), s3 or registry. Default
	// http.
	// +optional
	// +kubebuilder:default=http
	SourceType VMDiskImageSourceType `json:"sourceType,omitempty"`

	// The checksum of the file, as ALGORITHM:HEX. Only for sourceType http.
	// +optional
	// +kubebuilder:validation:MaxLength=160
	// +kubebuilder:validation:Pattern=`^(md5:[0-9a-f]{32}|sha1:[0-9a-f]{40}|sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`
	Checksum string `json:"checksum,omitempty"`

	// The Secret with the credentials for the source, in the namespace of the image.
	// +optional
	SecretRef *VMDiskImageSecretReference `json:"secretRef,omitempty"`

	// The size of the volume that the image is imported into, and of the disk of the
	// machine, such as 20Gi.
	// +required
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9.]*[1-9]')",message="template.diskSize must be greater than 0, such as 20Gi"
	DiskSize resource.Quantity `json:"diskSize"`

	// The StorageClass of the volume. Its driver must be able to take snapshots.
	// Default: the cluster's default one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`

	// The VolumeSnapshotClass of the snapshot. Default: the default one of the driver.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SnapshotClass string `json:"snapshotClass,omitempty"`
}

// ImageSpec returns the spec of a VMDiskImage that is created from the template.
func (t *VMDiskImageTemplate) ImageSpec() VMDiskImageSpec {
	return VMDiskImageSpec{
		URL: t.URL, SourceType: t.SourceType, Checksum: t.Checksum, SecretRef: t.SecretRef, DiskSize: t.DiskSize,
		StorageClass: t.StorageClass, SnapshotClass: t.SnapshotClass,
	}
}

// DiffersFrom returns the fields in which the data of an image differs from what it would be if it had been created from the template.
// Without a template there are none.
func (t *VMDiskImageTemplate) DiffersFrom(image *VMDiskImageSpec) (fields []string) {
	if t == nil {
		return nil
	}
	differs := map[string]bool{
		"url": t.URL != image.URL, "checksum": t.Checksum != image.Checksum, "diskSize": t.DiskSize.Cmp(image.DiskSize) != 0,
		"sourceType": cmp.Or(t.SourceType, VMDiskImageHTTP) != cmp.Or(image.SourceType, VMDiskImageHTTP),
	}
	for _, field := range []string{"url", "checksum", "diskSize", "sourceType"} {
		if differs[field] {
			fields = append(fields, field)
		}
	}
	return fields
}

// In returns the name of the VMDiskImage, for an object in that namespace.
func (r *VMDiskImageReference) In(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(r.Namespace, namespace), Name: r.Name}
}

// Is reports whether the image is the one that a disk is copied from.
func (u *UsedDiskImage) Is(i *VMDiskImage) bool {
	return u.Namespace == i.Namespace && u.Name == i.Name && u.UID == i.UID
}

// Unusable says why no disk can be copied from the image now, as the reason and message of a condition. The reason is empty if a disk can
// be copied.
func (i *VMDiskImage) Unusable() (ConditionReason, string) {
	const see = "see the condition Ready of the image"
	state := string(cmp.Or(i.Status.Phase, VMDiskImagePending))
	if ready := ConditionReady.In(i.Status.Conditions); ready != nil && ready.Reason != state {
		state += ", " + ready.Reason
	}
	switch {
	case !i.DeletionTimestamp.IsZero():
		return ReasonImageTerminating, fmt.Sprintf("VMDiskImage %s is being deleted: create it again once it is gone", i.Name)
	case i.Status.Phase == VMDiskImageFailed:
		return ReasonImageFailed, fmt.Sprintf("the import of VMDiskImage %s failed (%s): %s", i.Name, state, see)
	case i.Status.Phase == VMDiskImageLost:
		return ReasonImageLost, fmt.Sprintf("the data of VMDiskImage %s is lost: delete the image, and create it again", i.Name)
	case i.Status.Phase != VMDiskImageReady, i.Status.Snapshot == nil, i.Status.Claim == nil, i.Status.VirtualSize == nil:
		return ReasonImageImporting, fmt.Sprintf("waiting for VMDiskImage %s (%s): %s", i.Name, state, see)
	case i.Spec.Retired: // which is only about disks that do not use it yet
		return ReasonImageRetired, fmt.Sprintf("VMDiskImage %s is retired: name another image, or set its spec.retired to false", i.Name)
	}
	return "", ""
}

// ImageMissing is the message for an image that does not exist.
func ImageMissing(image types.NamespacedName) string {
	return fmt.Sprintf("VMDiskImage %s does not exist in namespace %s: create it", image.Name, image.Namespace)
}

// ImageNotAllowed is the message for an image that objects of that namespace may not use.
func ImageNotAllowed(image types.NamespacedName, namespace string) string {
	return fmt.Sprintf("namespace %s may not use VMDiskImage %s in namespace %s: use an image of the same namespace, or have spec.allowedNamespaces of the image changed",
		namespace, image.Name, image.Namespace)
}

// Allows reports whether objects of a namespace with these labels may use the image, if it is another namespace than that of the image.
func (n *VMDiskImageNamespaces) Allows(labels map[string]string) bool {
	switch {
	case n.From == VMDiskImageFromAll:
		return true
	case n.From != VMDiskImageFromSelector || n.Selector == nil:
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(n.Selector)
	return err == nil && selector.Matches(klabels.Set(labels))
}

// ImageDiskName returns the name of the VirtualDisk that a machine of that name boots from if it has spec.diskImage.
func ImageDiskName(machine string) string { return machine + "-boot" }

// BlockDevices returns the disks of the machine: the one that is copied from spec.diskImage, which comes first in the boot order, and
// those of spec.blockDeviceRefs.
func (vm *VirtualMachine) BlockDevices() []BlockDeviceRef {
	if vm.Spec.DiskImage == nil {
		return vm.Spec.BlockDeviceRefs
	}
	boot := BlockDeviceRef{Kind: BlockDeviceVirtualDisk, Name: ImageDiskName(vm.Name), BootOrder: new(int32(0))}
	all := []BlockDeviceRef{boot}
	for _, ref := range vm.Spec.BlockDeviceRefs {
		if ref.Kind != boot.Kind || ref.Name != boot.Name {
			all = append(all, ref)
		}
	}
	return all
}

// HasDisk reports whether a VirtualDisk of that name is a disk of the machine.
func (vm *VirtualMachine) HasDisk(name string) bool {
	return slices.ContainsFunc(vm.BlockDevices(), func(ref BlockDeviceRef) bool {
		return ref.Kind == BlockDeviceVirtualDisk && ref.Name == name
	})
}
