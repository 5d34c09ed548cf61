package v1alpha1

// PodRuntime describes a machine that a node agent runs as a pod.
type PodRuntime struct {
	// The image that the node agent boots, as an OCI reference. Empty, the
	// default, boots what the agent has configured.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// The Secret of type kubernetes.io/dockerconfigjson, in the namespace of the
	// VirtualMachine, with which snapshots of the machine are written and read when it
	// is moved. A user who sets it needs the right to get the Secret. Without it, the
	// registry is accessed anonymously.
	// +optional
	SnapshotSecretRef *SnapshotSecretReference `json:"snapshotSecretRef,omitempty"`
}

// SnapshotSecretReference names a Secret in the namespace of the VirtualMachine.
type SnapshotSecretReference struct {
	// The name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
