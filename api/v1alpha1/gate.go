package v1alpha1

// Annotations of the ValidatingWebhookConfiguration in which policies on kinds that are not Sallyport's are registered. Until the time in
// AnnotationGateOpenUntil (RFC 3339), requests about these kinds are admitted whatever policies say. AnnotationGateReason and
// AnnotationGateOpenedBy are shown to users and not verified: any client that may write the object can set them. kubectl sallyport gate writes all three.
const (
	AnnotationGateOpenUntil = "sallyport.dev/gate-open-until"
	AnnotationGateReason    = "sallyport.dev/gate-reason"
	AnnotationGateOpenedBy  = "sallyport.dev/gate-opened-by"
)

// AnnotationRestored of the same object is when it was noticed that etcd was restored from a backup (RFC 3339). As long as it exists, Sallyport
// sends nothing to runtimes. kubectl sallyport resume removes it.
const AnnotationRestored = "sallyport.dev/restored"

// AnnotationReadOnly of the same object is "true" if the chart value readOnly is set. A replica that was started before sends nothing to
// runtimes from then on. The chart writes it.
const AnnotationReadOnly = "sallyport.dev/read-only"
