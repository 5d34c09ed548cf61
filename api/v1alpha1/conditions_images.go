package v1alpha1

const (
	// ConditionImported of a VMDiskImage is true when its data is complete in its
	// claim. Set by the image reconciler.
	ConditionImported ConditionType = "Imported"
	// ConditionSnapshotReady of a VMDiskImage is true when the snapshot of its claim is
	// ready to be used. Set by the image reconciler.
	ConditionSnapshotReady ConditionType = "SnapshotReady"
	// ConditionInUse of a VMDiskImage is true while a disk uses it. Set by the image
	// reconciler.
	ConditionInUse ConditionType = "InUse"
	// ConditionRetired of a VMDiskImage is true while it is closed to new users. Set by
	// the image reconciler.
	ConditionRetired ConditionType = "Retired"
	// ConditionDeletionBlocked of a VMDiskImage is true while something blocks a deletion
	// that a user or spec.deletionPolicy has asked for, and absent otherwise. Set by the
	// image reconciler.
	ConditionDeletionBlocked ConditionType = "DeletionBlocked"
)

// Reasons of a VMDiskImage's conditions. Ready has the reason of the first condition that is not true. If another
// object has a name that the import needs, the reason is OwnedByAnother; if Sallyport lacks a right, it is
// PermissionDenied; if the Secret in spec.secretRef does not exist, it is SecretNotFound; while the object is being deleted, it is Terminating. DeletionBlocked also has the reasons
// PermissionDenied and ImportsDisabled.
const (
	// ReasonImageReady (Ready true): the snapshot is ready to be used.
	ReasonImageReady ConditionReason = "ImageReady"
	// ReasonImportSucceeded (Imported true): the data is complete.
	ReasonImportSucceeded ConditionReason = "ImportSucceeded"
	// ReasonImporting (Imported false, Ready false): CDI imports the data, or is about
	// to. The message has the number of the attempt and what CDI says.
	ReasonImporting ConditionReason = "Importing"
	// ReasonImportUnknown (Imported unknown, Ready unknown): CDI does not know the state
	// of the import.
	ReasonImportUnknown ConditionReason = "ImportUnknown"
	// ReasonImportsDisabled (Imported false, Ready false): the installation of Sallyport
	// does not import images. The message has the value of the chart that changes this.
	ReasonImportsDisabled ConditionReason = "ImportsDisabled"
	// ReasonImportsNotServed (Imported false, Ready false): the cluster does not serve
	// the kind DataVolume, because CDI is not installed. The import starts when it is.
	ReasonImportsNotServed ConditionReason = "ImportsNotServed"
	// ReasonSnapshotsNotServed (Imported false, SnapshotReady unknown, Ready false or
	// unknown): the cluster does not serve the kinds of volume snapshots. An import waits for them.
	ReasonSnapshotsNotServed ConditionReason = "SnapshotsNotServed"
	// ReasonStorageClassNotFound (Imported false, Ready false): the StorageClass does not
	// exist, or there is no default one. The import waits for it.
	ReasonStorageClassNotFound ConditionReason = "StorageClassNotFound"
	// ReasonSnapshotUnsupported (Imported false, Ready false): no VolumeSnapshotClass fits the
	// StorageClass. Nothing is imported before there is one.
	ReasonSnapshotUnsupported ConditionReason = "SnapshotUnsupported"
	// ReasonSecretHostNotAllowed (Imported false, Ready false): neither the annotation
	// sallyport.dev/allowed-hosts of the Secret nor an administrator allows that its
	// credentials are sent to the host in spec.url. The import waits for that; the message
	// has the command.
	ReasonSecretHostNotAllowed ConditionReason = "SecretHostNotAllowed"
	// ReasonImportRejected (Imported false, Ready false): the DataVolume could not be
	// created; this is retried. The message says why.
	ReasonImportRejected ConditionReason = "ImportRejected"
	// ReasonImportFailed (Imported false, Ready false): CDI gave up, or the DataVolume or
	// claim was deleted.
	ReasonImportFailed ConditionReason = "ImportFailed"
	// ReasonImportStalled (Imported false, Ready false): the attempt made no progress
	// for spec.import.stallTimeout.
	ReasonImportStalled ConditionReason = "ImportStalled"
	// ReasonImportDeadlineExceeded (Imported false, Ready false): the attempt took longer
	// than spec.import.deadline.
	ReasonImportDeadlineExceeded ConditionReason = "ImportDeadlineExceeded"
	// ReasonRetryLimitExceeded (Imported false, Ready false): the import failed for
	// good, after spec.import.retryLimit retries. The message has the last failure.
	ReasonRetryLimitExceeded ConditionReason = "RetryLimitExceeded"
	// ReasonChecksumMismatch (Imported false, Ready false): the import failed for good,
	// because the data does not have the checksum of the spec.
	ReasonChecksumMismatch ConditionReason = "ChecksumMismatch"
	// ReasonChecksumNotSupported (Imported false, Ready false): the import failed for
	// good, because this version of CDI cannot verify a checksum.
	ReasonChecksumNotSupported ConditionReason = "ChecksumNotSupported"
	// ReasonSnapshotReady (SnapshotReady true): the snapshot is ready to be used.
	ReasonSnapshotReady ConditionReason = "SnapshotReady"
	// ReasonSnapshotPending (SnapshotReady false, Ready false): the snapshot is being
	// taken, or waits for the data.
	ReasonSnapshotPending ConditionReason = "SnapshotPending"
	// ReasonSnapshotFailed (SnapshotReady false, Ready false): the snapshot could not be
	// taken; this is retried. The message is that of the driver.
	ReasonSnapshotFailed ConditionReason = "SnapshotFailed"
	// ReasonImageLost (SnapshotReady false, Ready false): the claim or the snapshot of the
	// image was deleted. The image is not imported again.
	ReasonImageLost ConditionReason = "ImageLost"

	// ReasonImageReferenced (InUse true, DeletionBlocked true): disks use the image. Delete
	// the users that the message names, or wait until they are deleted.
	ReasonImageReferenced ConditionReason = "ImageReferenced"
	// ReasonImageUnreferenced (InUse false; also an event, before the image is deleted by
	// its deletionPolicy): no disk uses the image. Delete it if it is not needed.
	ReasonImageUnreferenced ConditionReason = "ImageUnreferenced"
	// ReasonRetired (Retired true): spec.retired is true. Set it to false to allow
	// new users.
	ReasonRetired ConditionReason = "Retired"
	// ReasonInService (Retired false): new disks may use the image. Set spec.retired
	// to true to change that.
	ReasonInService ConditionReason = "InService"
	// ReasonDeletionProtected (DeletionBlocked true): the image is due for deletion, and has
	// the label sallyport.dev/deletion-protection. Remove the label, or change
	// spec.deletionPolicy.
	ReasonDeletionProtected ConditionReason = "DeletionProtected"
	// ReasonDeletionDenied (DeletionBlocked true): the image is due for deletion, and the
	// API server denied it. The message says why. Allow it, or change
	// spec.deletionPolicy.
	ReasonDeletionDenied ConditionReason = "DeletionDenied"
	// ReasonChildrenRemain (DeletionBlocked true): an object of the image, such as its
	// snapshot, has not been deleted for a minute. The message says which one, and what
	// it waits for.
	ReasonChildrenRemain ConditionReason = "ChildrenRemain"
)
