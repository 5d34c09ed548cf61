package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

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

	// More fields of the Pod: metadata.annotations; spec.tolerations,
	// spec.priorityClassName, spec.nodeSelector, spec.affinity and spec.securityContext;
	// and, of the container machine in spec.containers, resources.limits and
	// securityContext. A security context can only restrict: there is no privileged.
	// What Sallyport sets itself holds as well. Condition Ready names other fields, and
	// has what the API server rejects. A change applies to the next Pod, which a move
	// creates. Default none.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`
}

// SnapshotSecretReference names a Secret in the namespace of the VirtualMachine.
type SnapshotSecretReference struct {
	// The name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
