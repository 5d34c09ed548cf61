package v1alpha1

// What the policies scaling-guard and deletion-protected read of objects of any kind.
const (
	// LabelDeletionProtection with the value [DeletionProtectionEnabled], and no other, keeps an object from being deleted.
	LabelDeletionProtection = "sallyport.dev/deletion-protection"
	// DeletionProtectionEnabled is the one value of [LabelDeletionProtection].
	DeletionProtectionEnabled = "enabled"

	// AnnotationScaleDown on a workload says whether it may have fewer replicas: Allow or Deny.
	AnnotationScaleDown = "sallyport.dev/scale-down"
	// AnnotationMinReplicas on a workload is the minimum number of replicas.
	AnnotationMinReplicas = "sallyport.dev/min-replicas"
	// AnnotationMaxScaleDown on a workload is by how many replicas one request may scale it down: a number, or a percentage.
	AnnotationMaxScaleDown = "sallyport.dev/max-scale-down"
)
