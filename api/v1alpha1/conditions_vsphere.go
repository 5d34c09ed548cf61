package v1alpha1

// ConditionMachinesKnown of a VSphereServer is false if a machine in the folders of spec.tenants has the mark of a VirtualMachine that does
// not exist. status.orphans lists these machines. It is absent if there never was one.
const ConditionMachinesKnown ConditionType = "MachinesKnown"

// Reasons of a VSphereServer's condition Ready. If the account lacks a right, the reason is PermissionDenied; if the vCenter
// does not answer, it is RuntimeUnavailable.
const (
	// ReasonConnected (Ready true): the vCenter answers and accepts the credentials.
	ReasonConnected ConditionReason = "Connected"
	// ReasonMachinesKnown (MachinesKnown true): no machine is orphaned.
	ReasonMachinesKnown ConditionReason = "MachinesKnown"
	// ReasonOrphanedMachines (MachinesKnown false): machines have the mark of a
	// VirtualMachine that does not exist. The message names the first.
	ReasonOrphanedMachines ConditionReason = "OrphanedMachines"
	// ReasonLoginRefused (Ready false): the vCenter does not accept the user and the
	// password.
	ReasonLoginRefused ConditionReason = "LoginRefused"
	// ReasonOtherVCenter (Ready false): the URL leads to a vCenter with another instance
	// UUID than before. Nothing is sent to it until an administrator accepts it with the
	// annotation that the message names. No credentials were sent to it.
	ReasonOtherVCenter ConditionReason = "OtherVCenter"
	// ReasonCertificateNotTrusted (Ready false): the certificate of the vCenter does
	// not match spec.trust. No credentials were sent to it.
	ReasonCertificateNotTrusted ConditionReason = "CertificateNotTrusted"
	// ReasonTrustInvalid (Ready false): spec.trust cannot be used. The message
	// says why.
	ReasonTrustInvalid ConditionReason = "TrustInvalid"
	// ReasonSecretNotFound (Ready false): the Secret that spec.credentialsSecretRef
	// names does not exist.
	ReasonSecretNotFound ConditionReason = "SecretNotFound"
	// ReasonSecretIncomplete (Ready false): the Secret with the credentials has no
	// value for a key. The message names the key.
	ReasonSecretIncomplete ConditionReason = "SecretIncomplete"
	// ReasonSecretUnreadable (Ready unknown): the Secret with the credentials could
	// not be read.
	ReasonSecretUnreadable ConditionReason = "SecretUnreadable"
)

// Reasons of a VSphereTemplate's conditions. They are those of its failure domains, which may also have a
// reason of a VirtualMachine's condition, such as InvalidSpec.
const (
	// ReasonTemplateReady (Ready true): the template has the release of the spec.
	ReasonTemplateReady ConditionReason = "TemplateReady"
	// ReasonTemplateInProgress (Ready false): the release of the spec is being created.
	// The step shows the progress.
	ReasonTemplateInProgress ConditionReason = "TemplateInProgress"
	// ReasonDownloadTooSlow (Ready unknown): the download of the OVA was given up because
	// its server sent less than 4 MiB in a minute. Sallyport tries again.
	ReasonDownloadTooSlow ConditionReason = "DownloadTooSlow"
	// ReasonImportTimedOut (Ready unknown): the import, with its download, took longer
	// than three hours. Sallyport tries again.
	ReasonImportTimedOut ConditionReason = "ImportTimedOut"
	// ReasonForeignTemplate (Ready false): an object that does not belong to this
	// VSphereTemplate has a name that it needs, and is left alone. The message names it.
	ReasonForeignTemplate ConditionReason = "ForeignTemplate"
	// ReasonTemplateInUse (Ready false, or an event's): machines are being created from
	// a template that is about to be replaced or destroyed.
	ReasonTemplateInUse ConditionReason = "TemplateInUse"
	// ReasonPaused (Ready false): spec.paused is true.
	ReasonPaused ConditionReason = "Paused"
	// ReasonTemplateReplaced (an event's only): another release has the name now.
	ReasonTemplateReplaced ConditionReason = "TemplateReplaced"
)
