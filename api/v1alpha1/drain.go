package v1alpha1

// What Sallyport reads of Nodes when the Pod of a machine is to be evicted.
const (
	// LabelDrain on a Node with the value [DrainEnabled] lets Sallyport move machines off the Node when it is cordoned and their eviction is
	// requested, even if Sallyport cannot verify that the request comes from an API server. Administrators set it.
	LabelDrain = "sallyport.dev/drain"
	// DrainEnabled is the value of LabelDrain.
	DrainEnabled = "enabled"
)
