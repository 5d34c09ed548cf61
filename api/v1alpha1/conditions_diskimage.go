package v1alpha1

// ConditionImageReady of a VirtualMachine is true once the disk that it boots from was copied from the VMDiskImage in spec.diskImage.
// Absent without spec.diskImage. Set by the VirtualMachine reconciler.
const ConditionImageReady ConditionType = "ImageReady"

// ConditionImageDiffers of a VirtualMachine is true if its VMDiskImage existed and differs from spec.diskImage.template. Absent otherwise.
// Set by the VirtualMachine reconciler.
const ConditionImageDiffers ConditionType = "ImageDiffers"

// Reasons of a VirtualDisk's conditions. They say why a disk with spec.source is not created, and are also those of the conditions
// Ready and ImageReady of a VirtualMachine with spec.diskImage. If the data of the image is lost, the reason is ImageLost.
const (
	// ReasonImageMissing (Ready false, ImageReady false): the VMDiskImage does not exist.
	// The disk is created once it does.
	ReasonImageMissing ConditionReason = "ImageMissing"
	// ReasonImageImporting (Ready false, ImageReady false): the VMDiskImage is not ready
	// yet. The message has its phase.
	ReasonImageImporting ConditionReason = "ImageImporting"
	// ReasonImageFailed (Ready false, ImageReady false): the import of the VMDiskImage
	// failed for good.
	ReasonImageFailed ConditionReason = "ImageFailed"
	// ReasonImageTerminating (Ready false, ImageReady false): the VMDiskImage is being
	// deleted.
	ReasonImageTerminating ConditionReason = "ImageTerminating"
	// ReasonImageRetired (ImageReady false, Ready false): the image is retired, so that
	// no new disk can use it. Name another image, or set its spec.retired to false.
	ReasonImageRetired ConditionReason = "ImageRetired"
	// ReasonImageNotAllowed (Ready false, ImageReady false): the VMDiskImage may not be
	// used here, for example because it is in another namespace.
	ReasonImageNotAllowed ConditionReason = "ImageNotAllowed"
	// ReasonImageNotCreated (ImageReady false, Ready false): the VMDiskImage could not be
	// created from spec.diskImage.template. The message says why.
	ReasonImageNotCreated ConditionReason = "ImageNotCreated"
	// ReasonImageReplaced (an event's only): the VMDiskImage that the disk was to be
	// copied from no longer exists, and nothing had been copied. The disk is copied from
	// the image that has its name now.
	ReasonImageReplaced ConditionReason = "ImageReplaced"
	// ReasonTemplateDiffers (ImageDiffers true): the message has the fields in which the
	// VMDiskImage differs from the template.
	ReasonTemplateDiffers ConditionReason = "TemplateDiffers"
	// ReasonImageCopied (ImageReady true): the disk exists.
	ReasonImageCopied ConditionReason = "ImageCopied"
)
