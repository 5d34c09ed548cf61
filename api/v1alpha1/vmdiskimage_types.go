package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VMDiskImageFinalizer keeps a VMDiskImage until its DataVolume, claim and snapshot are deleted. The policy `defaults` adds it, the
// image reconciler removes it.
const VMDiskImageFinalizer = "sallyport.dev/vm-disk-image"

// What the image reconciler writes on the DataVolumes and VolumeSnapshots of a VMDiskImage. CDI copies it to the claims.
const (
	// LabelDiskImage is the UID of the VMDiskImage.
	LabelDiskImage = "sallyport.dev/disk-image"
	// LabelImportAttempt is the number of the attempt that made the object.
	LabelImportAttempt = "sallyport.dev/import-attempt"
	// AnnotationDiskImageName is the name of the VMDiskImage.
	AnnotationDiskImageName = "sallyport.dev/disk-image-name"
)

// AnnotationRetryImport on a VMDiskImage whose import failed imports it again. Its value is the number of the next attempt, so that it
// has no effect on a later failure.
const AnnotationRetryImport = "sallyport.dev/retry-import"

// AnnotationAllowedHosts on a Secret lists the hosts that the credentials in it may be sent to for the import of VMDiskImages, separated by commas:
// HOST, HOST:PORT, *.DOMAIN, or * for every host. Without a port, only the standard port of the protocol is allowed. Who may update the Secret sets it.
const AnnotationAllowedHosts = "sallyport.dev/allowed-hosts"

// VMDiskImagePhase sums up what is observed of an image.
//
// +kubebuilder:validation:Enum=Pending;Importing;Ready;Failed;Lost;Terminating
type VMDiskImagePhase string

const (
	// VMDiskImagePending means that the import has not started, or waits for its next
	// attempt.
	VMDiskImagePending VMDiskImagePhase = "Pending"
	// VMDiskImageImporting means that the data is being imported, or that the snapshot
	// of it is being taken.
	VMDiskImageImporting VMDiskImagePhase = "Importing"
	// VMDiskImageReady means that the snapshot is ready to be used.
	VMDiskImageReady VMDiskImagePhase = "Ready"
	// VMDiskImageFailed means that the import failed for good. The condition Imported
	// says why, and how to import again.
	VMDiskImageFailed VMDiskImagePhase = "Failed"
	// VMDiskImageLost means that the claim or the snapshot of an image that was ready
	// no longer exists. Sallyport does not import it again.
	VMDiskImageLost VMDiskImagePhase = "Lost"
	// VMDiskImageTerminating means that the object is being deleted.
	VMDiskImageTerminating VMDiskImagePhase = "Terminating"
)

// VMDiskImageSourceType is the protocol of the source of an image.
//
// +kubebuilder:validation:Enum=http;s3;registry
type VMDiskImageSourceType string

const (
	// VMDiskImageHTTP is a file on an HTTP or HTTPS server.
	VMDiskImageHTTP VMDiskImageSourceType = "http"
	// VMDiskImageS3 is an object in an S3 bucket.
	VMDiskImageS3 VMDiskImageSourceType = "s3"
	// VMDiskImageRegistry is a container image with a disk, in a registry.
	VMDiskImageRegistry VMDiskImageSourceType = "registry"
)

// VMDiskImageDeletionPolicy says what happens to an image that no disk uses.
//
// +kubebuilder:validation:Enum=Retain;DeleteAfterUnreferenced
type VMDiskImageDeletionPolicy string

const (
	// VMDiskImageRetain keeps the image until a user deletes it.
	VMDiskImageRetain VMDiskImageDeletionPolicy = "Retain"
	// VMDiskImageDeleteAfterUnreferenced deletes the image once it was ready, and used by
	// no disk, for spec.ttlAfterUnreferenced.
	VMDiskImageDeleteAfterUnreferenced VMDiskImageDeletionPolicy = "DeleteAfterUnreferenced"
)

// DefaultTTLAfterUnreferenced is the default of spec.ttlAfterUnreferenced.
const DefaultTTLAfterUnreferenced = 24 * time.Hour

// VMDiskImageNamespacesFrom says how the namespaces that may use an image are selected.
//
// +kubebuilder:validation:Enum=Same;All;Selector
type VMDiskImageNamespacesFrom string

const (
	// VMDiskImageFromSame allows the namespace of the image only.
	VMDiskImageFromSame VMDiskImageNamespacesFrom = "Same"
	// VMDiskImageFromAll allows every namespace.
	VMDiskImageFromAll VMDiskImageNamespacesFrom = "All"
	// VMDiskImageFromSelector allows the namespaces with certain labels, and that of the
	// image.
	VMDiskImageFromSelector VMDiskImageNamespacesFrom = "Selector"
)

// VMDiskImageNamespaces are the namespaces whose machines and disks may use an image.
//
// +kubebuilder:validation:XValidation:rule="has(self.selector) == (self.from == 'Selector')",message="spec.allowedNamespaces.selector is required with from: Selector, and not allowed otherwise"
type VMDiskImageNamespaces struct {
	// Same allows the namespace of the image only, All every namespace, and Selector
	// those that selector selects, and that of the image. Default Same.
	// +optional
	// +kubebuilder:default=Same
	From VMDiskImageNamespacesFrom `json:"from,omitempty"`

	// The labels of the namespaces. A user who may change the labels of a namespace can
	// allow it. Required with from: Selector.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || size(self.matchLabels) <= 64",message="spec.allowedNamespaces.selector.matchLabels must have at most 64 labels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 64 && self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64)",message="spec.allowedNamespaces.selector.matchExpressions must have at most 64 entries, each with at most 64 values"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// VMDiskImageSpec is the desired state of an image. Users own it. The source, the size and the classes are immutable: other data is another
// VMDiskImage.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ttlAfterUnreferenced) || self.deletionPolicy == 'DeleteAfterUnreferenced'",message="spec.ttlAfterUnreferenced is only allowed with deletionPolicy DeleteAfterUnreferenced"
// +kubebuilder:validation:XValidation:rule="has(self.checksum) == has(oldSelf.checksum) && has(self.secretRef) == has(oldSelf.secretRef) && has(self.storageClass) == has(oldSelf.storageClass) && has(self.snapshotClass) == has(oldSelf.snapshotClass)",message="spec.checksum, secretRef, storageClass and snapshotClass cannot be added or removed: create another VMDiskImage instead"
// +kubebuilder:validation:XValidation:rule="self.sourceType != 'http' || self.url.startsWith('https://') || self.url.startsWith('http://')",message="spec.url must begin with https:// or http:// if spec.sourceType is http"
// +kubebuilder:validation:XValidation:rule="self.sourceType != 's3' || self.url.startsWith('https://') || self.url.startsWith('http://') || self.url.startsWith('s3://')",message="spec.url must begin with https://, http:// or s3:// if spec.sourceType is s3"
// +kubebuilder:validation:XValidation:rule="self.sourceType != 'registry' || self.url.matches('^docker://[^@]+@sha256:[0-9a-f]{64}$')",message="spec.url must be docker://HOST/REPOSITORY@sha256:DIGEST if spec.sourceType is registry, because a tag can be moved"
// +kubebuilder:validation:XValidation:rule="self.sourceType == 'http' || !has(self.checksum)",message="spec.checksum is only allowed with sourceType http: it cannot be verified for s3 (use a presigned https URL), and a registry URL has a digest"
type VMDiskImageSpec struct {
	// The source of the image, such as https://images.example.org/ubuntu-24.04.qcow2. With
	// sourceType s3, the URL is https://HOST/BUCKET/KEY; with registry,
	// docker://HOST/REPOSITORY@sha256:DIGEST. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+://[!-~]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.url cannot change: create another VMDiskImage instead"
	URL string `json:"url"`

	// The protocol of the source: http (which includes https), s3 or registry.
	// Immutable. Default http.
	// +optional
	// +kubebuilder:default=http
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.sourceType cannot change: create another VMDiskImage instead"
	SourceType VMDiskImageSourceType `json:"sourceType,omitempty"`

	// The checksum of the file, as ALGORITHM:HEX, such as sha256:9f86d08.... A file with
	// another checksum is not imported. Only for sourceType http. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=160
	// +kubebuilder:validation:Pattern=`^(md5:[0-9a-f]{32}|sha1:[0-9a-f]{40}|sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.checksum cannot change: create another VMDiskImage instead"
	Checksum string `json:"checksum,omitempty"`

	// The Secret with the credentials for the source, in its keys accessKeyId and
	// secretKey. Its annotation sallyport.dev/allowed-hosts must list the host in url,
	// unless an administrator allows the host. The importer also sends the credentials to
	// hosts that the source redirects to. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="spec.secretRef cannot change: create another VMDiskImage instead"
	SecretRef *VMDiskImageSecretReference `json:"secretRef,omitempty"`

	// The size of the volume that the image is imported into, such as 20Gi. It must not
	// be less than the virtual size of the image. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9.]*[1-9]')",message="spec.diskSize must be greater than 0, such as 20Gi"
	// +kubebuilder:validation:XValidation:rule="string(self) == string(oldSelf) || ![self, oldSelf].exists(size, string(size).matches('[eE]([.]|.{3})')) && quantity(string(self)).compareTo(quantity(string(oldSelf))) == 0",message="spec.diskSize cannot change: create another VMDiskImage instead"
	DiskSize resource.Quantity `json:"diskSize"`

	// The StorageClass of that volume. Its driver must be able to take snapshots.
	// Immutable. Default: the cluster's default one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.storageClass cannot change: create another VMDiskImage instead"
	StorageClass string `json:"storageClass,omitempty"`

	// The VolumeSnapshotClass of the snapshot. Immutable. Default: the only one of the
	// driver, or the one of them that is marked as the default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.snapshotClass cannot change: create another VMDiskImage instead"
	SnapshotClass string `json:"snapshotClass,omitempty"`

	// The limits of the import.
	// +optional
	Import VMDiskImageImport `json:"import,omitzero"`

	// Whether the image is closed to new users. Disks that use it keep their data, and
	// the image is kept. It can be set to false again.
	// +optional
	Retired bool `json:"retired,omitempty"`

	// The namespaces whose machines and disks may use the image. Disks that use it
	// already keep their data. Default: the namespace of the image only.
	// +optional
	AllowedNamespaces VMDiskImageNamespaces `json:"allowedNamespaces,omitzero"`

	// What happens to an image that no disk uses: Retain keeps it,
	// DeleteAfterUnreferenced deletes it after ttlAfterUnreferenced. Default Retain.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy VMDiskImageDeletionPolicy `json:"deletionPolicy,omitempty"`

	// How long a ready image that no disk uses is kept, from 10m to 8760h, counted from
	// status.unreferencedSince. Only with deletionPolicy DeleteAfterUnreferenced. Default
	// 24h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10m') && duration(self) <= duration('8760h')",message="spec.ttlAfterUnreferenced must be between 10m and 8760h, such as 24h"
	TTLAfterUnreferenced *metav1.Duration `json:"ttlAfterUnreferenced,omitempty"`
}

// VMDiskImageSecretReference names a Secret in the namespace of the VMDiskImage.
type VMDiskImageSecretReference struct {
	// The name of the Secret. Whoever creates the VMDiskImage must be allowed to get it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// VMDiskImageReference names a VMDiskImage that disks are made from.
type VMDiskImageReference struct {
	// The name of the VMDiskImage.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The namespace of the VMDiskImage. Default: the namespace of the object that has
	// this reference.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// FieldUsedDiskImage is the field of a VirtualDisk that has the UID of the VMDiskImage that it is copied from, for selectors.
const FieldUsedDiskImage = "status.image.uid"

// UsedDiskImage is the VMDiskImage that a disk is copied from.
type UsedDiskImage struct {
	// The namespace of the VMDiskImage.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// The name of the VMDiskImage.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Its UID, which excludes another image of the same name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`
}

// VMDiskImageImport limits an import. A failed attempt is followed by another one after a pause of 1 to 30 minutes.
type VMDiskImageImport struct {
	// How long one attempt may take, until the snapshot is ready. Default 2h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="spec.import.deadline must be greater than 0, such as 2h"
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// How long an attempt may make no progress. Default 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="spec.import.stallTimeout must be greater than 0, such as 15m"
	StallTimeout *metav1.Duration `json:"stallTimeout,omitempty"`

	// How often the import is tried again before it fails for good. Restarts of the
	// importer count. Default 5.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RetryLimit *int32 `json:"retryLimit,omitempty"`
}

// VMDiskImageAttempt is the present or last attempt to import an image.
type VMDiskImageAttempt struct {
	// Its number, from 1 on.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`

	// When it started.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// The UID of its DataVolume, once that was observed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	DataVolumeUID types.UID `json:"dataVolumeUID,omitempty"`

	// How often its importer was restarted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RestartCount int32 `json:"restartCount,omitempty"`

	// What CDI last said of a failure of its importer, which it restarts.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastError string `json:"lastError,omitempty"`

	// The progress that CDI last reported, such as 45.12%.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Progress string `json:"progress,omitempty"`

	// When the progress last changed, to the minute.
	// +optional
	ProgressAt *metav1.Time `json:"progressAt,omitempty"`

	// How many retries the earlier attempts used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RetriesUsed int32 `json:"retriesUsed,omitempty"`

	// When the next attempt starts. Set once this one failed.
	// +optional
	RetryAt *metav1.Time `json:"retryAt,omitempty"`
}

// VMDiskImageChild is an object of an image.
type VMDiskImageChild struct {
	// Its name, in the namespace of the VMDiskImage.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Its UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`
}

// VMDiskImageUser is an object that uses an image.
type VMDiskImageUser struct {
	// Its kind: VirtualMachine for a disk that belongs to a machine, otherwise
	// VirtualDisk.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Its name, in the namespace of the VMDiskImage.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Its UID.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid"`
}

// VMDiskImageReferences are the VirtualDisks that are copied from an image: those that have its UID in status.image.
type VMDiskImageReferences struct {
	// How many disks use the image, in all namespaces.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// How many of them are in other namespaces than the image. They are not named here.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Elsewhere int32 `json:"elsewhere,omitempty"`

	// The first 20 users in the namespace of the image, ordered by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Users []VMDiskImageUser `json:"users,omitempty"`
}

// VMDiskImageStatus is the observed state of an image. The image reconciler owns it.
type VMDiskImageStatus struct {
	// The metadata.generation that the rest of the status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What the image is doing, in one word: Pending, Importing, Ready, Failed, Lost or
	// Terminating.
	// +optional
	Phase VMDiskImagePhase `json:"phase,omitempty"`

	// The size that a disk made from the image has at least. Set once the snapshot is
	// ready.
	// +optional
	VirtualSize *resource.Quantity `json:"virtualSize,omitempty"`

	// The present or last attempt to import the image.
	// +optional
	Attempt *VMDiskImageAttempt `json:"attempt,omitempty"`

	// The PersistentVolumeClaim with the data. Set once the data is complete.
	// +optional
	Claim *VMDiskImageChild `json:"claim,omitempty"`

	// The VolumeSnapshot of the claim. Set once it is ready to be used.
	// +optional
	Snapshot *VMDiskImageChild `json:"snapshot,omitempty"`

	// The disks that use the image. While there are any, the data is not deleted.
	// +optional
	References *VMDiskImageReferences `json:"references,omitempty"`

	// Since when the image has been ready and no disk has used it. With deletionPolicy
	// DeleteAfterUnreferenced, spec.ttlAfterUnreferenced counts from this time.
	// +optional
	UnreferencedSince *metav1.Time `json:"unreferencedSince,omitempty"`

	// The state of the image in detail. Ready is true when the snapshot is ready to be
	// used. DeletionBlocked is there only while something blocks a deletion.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VMDiskImage is an image that disks of machines start from. CDI imports it from its source into a PersistentVolumeClaim, of which a
// VolumeSnapshot is taken. Both are deleted with the VMDiskImage, once no disk uses it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=vmdiskimages,shortName=vmdi,categories=sallyport
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="Whether it is imported."
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.attempt.progress`,description="How far the import is."
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.virtualSize`,description="How large a disk made from it is at least."
// +kubebuilder:printcolumn:name="Users",type=integer,JSONPath=`.status.references.count`,description="How many disks are copied from it."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether its snapshot is ready to be used."
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not, in one word."
// +kubebuilder:printcolumn:name="URL",type=string,priority=1,JSONPath=`.spec.url`,description="Where it is imported from."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type VMDiskImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The desired state of the image.
	// +required
	Spec VMDiskImageSpec `json:"spec"`

	// The observed state of the image.
	// +optional
	Status VMDiskImageStatus `json:"status,omitzero"`
}

// VMDiskImageList is a list of VMDiskImages.
//
// +kubebuilder:object:root=true
type VMDiskImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// The images.
	Items []VMDiskImage `json:"items"`
}
