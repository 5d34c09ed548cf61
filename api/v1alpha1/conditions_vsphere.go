package v1alpha1

// Reasons of a VSphereServer's condition Ready. One that lacks a right that it needs has PermissionDenied, one that does not
// answer has RuntimeUnavailable.
const (
	// ReasonConnected (Ready true): the vCenter answers and takes the credentials.
	ReasonConnected ConditionReason = "Connected"
	// ReasonLoginRefused (Ready false): the vCenter does not take the user and the
	// password.
	ReasonLoginRefused ConditionReason = "LoginRefused"
	// ReasonCertificateNotTrusted (Ready false): the certificate that the vCenter
	// shows is not what spec.trust says. Nothing was sent to it.
	ReasonCertificateNotTrusted ConditionReason = "CertificateNotTrusted"
	// ReasonTrustInvalid (Ready false): spec.trust cannot be used. The message
	// says why.
	ReasonTrustInvalid ConditionReason = "TrustInvalid"
	// ReasonSecretNotFound (Ready false): there is no Secret of the name that
	// spec.credentialsSecretRef has.
	ReasonSecretNotFound ConditionReason = "SecretNotFound"
	// ReasonSecretIncomplete (Ready false): the Secret with the credentials lacks
	// a key, or has nothing under it. The message names the key.
	ReasonSecretIncomplete ConditionReason = "SecretIncomplete"
	// ReasonSecretUnreadable (Ready unknown): the Secret with the credentials
	// could not be read, so that nothing is known of it.
	ReasonSecretUnreadable ConditionReason = "SecretUnreadable"
)

// Reasons of a VSphereTemplate's conditions. They are those of its failure domains, which may also have a
// reason of a VirtualMachine's condition, such as InvalidSpec.
const (
	// ReasonTemplateReady (Ready true): the template has the release of the spec.
	ReasonTemplateReady ConditionReason = "TemplateReady"
	// ReasonTemplateInProgress (Ready false): the release of the spec is being made.
	// The step says how far it is.
	ReasonTemplateInProgress ConditionReason = "TemplateInProgress"
	// ReasonForeignTemplate (Ready false): something that is not of this
	// VSphereTemplate has a name that is needed, and is left alone. The message names
	// it.
	ReasonForeignTemplate ConditionReason = "ForeignTemplate"
	// ReasonTemplateInUse (Ready false, or an event's): machines are being made from
	// a template that is to be replaced or destroyed.
	ReasonTemplateInUse ConditionReason = "TemplateInUse"
	// ReasonPaused (Ready false): spec.paused holds it back.
	ReasonPaused ConditionReason = "Paused"
	// ReasonTemplateReplaced (an event's only): another release has the name now.
	ReasonTemplateReplaced ConditionReason = "TemplateReplaced"
)
