package v1alpha1

// What the policies scaling-guard and deletion-protected read of objects of any kind.
const (
	// LabelDeletionProtection with the value [DeletionProtectionEnabled], and no other, keeps an object from being deleted.
	LabelDeletionProtection = "sallyport.dev/deletion-protection"
	// DeletionProtectionEnabled is the one value of [LabelDeletionProtection].
	DeletionProtectionEnabled = "enabled"

	// AnnotationScaleDown on a workload says whether it may have fewer replicas: Allow or Deny.
	AnnotationScaleDown = "sallyport.dev/scale-down"
	// AnnotationMinReplicas on a workload is the number of replicas below which it does not go.
	AnnotationMinReplicas = "sallyport.dev/min-replicas"
	// AnnotationMaxScaleDown on a workload is how many replicas fewer it may have after one request: a number, or a percentage.
	AnnotationMaxScaleDown = "sallyport.dev/max-scale-down"
)
