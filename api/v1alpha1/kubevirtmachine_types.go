package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// LabelMachineOfKubeVirt on a KubeVirt VirtualMachine that Sallyport runs has the UID of the VirtualMachine.
const LabelMachineOfKubeVirt = "sallyport.dev/virtual-machine-uid"

// KubeVirtRuntime describes a machine that KubeVirt runs in this cluster: a KubeVirt
// VirtualMachine that exists and is adopted, or one that is created.
//
// +kubebuilder:validation:XValidation:rule="!has(self.name) || !has(self.create)",message="spec.runtime.kubevirt: set name or create, not both"
// +kubebuilder:validation:XValidation:rule="has(self.create) == has(oldSelf.create)",message="spec.runtime.kubevirt cannot change between a machine that is adopted and one that is created: create another VirtualMachine instead"
// +kubebuilder:validation:XValidation:rule="has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",message="spec.runtime.kubevirt.name cannot change: create another VirtualMachine instead"
type KubeVirtRuntime struct {
	// The KubeVirt VirtualMachine to adopt, in the namespace of the VirtualMachine.
	// Default, without create: the one with the name of the VirtualMachine. Its run
	// strategy becomes Manual. When the VirtualMachine is deleted, it gets back its run
	// strategy, or the one that keeps it on or off as it is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// How to create a KubeVirt VirtualMachine, which has the name of the
	// VirtualMachine and is deleted with it. Default: none, one is adopted.
	// +optional
	Create *KubeVirtMachine `json:"create,omitempty"`
}

// KubeVirtMachine says how a machine of KubeVirt is created. It is immutable.
// Processors and memory are in spec.cpu and spec.memory, or in an instance type.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.runtime.kubevirt.create cannot change once the VirtualMachine exists: create another VirtualMachine instead"
type KubeVirtMachine struct {
	// The instance type of KubeVirt with the size of the machine. Not allowed with
	// spec.cpu and spec.memory.
	// +optional
	Instancetype *KubeVirtReference `json:"instancetype,omitempty"`

	// The preference of KubeVirt with the devices that the guest works best with.
	// Default none.
	// +optional
	Preference *KubeVirtReference `json:"preference,omitempty"`

	// The disks of the machine beside its VirtualDisks, in boot order. Those that are
	// claims or DataVolumes outlive the machine. Default none, such as for a machine
	// with spec.diskImage.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Disks []KubeVirtDisk `json:"disks,omitempty"`

	// The networks of the machine: the first network interface is connected to the
	// first one, and so on. Default: the Pod network.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:XValidation:rule="self.filter(n, !has(n.networkAttachmentDefinition)).size() <= 1",message="spec.runtime.kubevirt.create.networks: at most one entry can be the Pod network, which is one without networkAttachmentDefinition"
	Networks []KubeVirtNetwork `json:"networks,omitempty"`

	// The data for cloud-init in the guest. Default none.
	// +optional
	CloudInit *KubeVirtCloudInit `json:"cloudInit,omitempty"`

	// More fields of spec.template of the KubeVirt VirtualMachine: metadata.labels,
	// metadata.annotations and spec, such as spec.tolerations, spec.evictionStrategy
	// and spec.domain.devices.hostDevices. Sallyport merges its own fields over them:
	// objects by field, and disks, volumes, interfaces and networks by name. A field
	// that Sallyport sets to another value is an error, except spec.nodeSelector and
	// spec.affinity, to which it adds those of the VirtualMachine. What KubeVirt
	// rejects is in condition Ready. Default none.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Template *runtime.RawExtension `json:"template,omitempty"`
}

// KubeVirtReference names an instance type or a preference of KubeVirt.
type KubeVirtReference struct {
	// Cluster (the default: a VirtualMachineClusterInstancetype or
	// VirtualMachineClusterPreference) or Namespace (a VirtualMachineInstancetype or
	// VirtualMachinePreference in the namespace of the VirtualMachine).
	// +optional
	// +kubebuilder:default=Cluster
	Scope KubeVirtScope `json:"scope,omitempty"`

	// The name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// KubeVirtScope is where an object of KubeVirt is.
//
// +kubebuilder:validation:Enum=Cluster;Namespace
type KubeVirtScope string

// The scopes of objects of KubeVirt.
const (
	// KubeVirtScopeCluster is the cluster.
	KubeVirtScopeCluster KubeVirtScope = "Cluster"
	// KubeVirtScopeNamespace is the namespace of the VirtualMachine.
	KubeVirtScopeNamespace KubeVirtScope = "Namespace"
)

// KubeVirtDisk is a disk of a machine that is created.
//
// +kubebuilder:validation:XValidation:rule="[has(self.containerDisk), has(self.persistentVolumeClaim), has(self.dataVolume)].filter(set, set).size() == 1",message="each entry of spec.runtime.kubevirt.create.disks needs exactly one of containerDisk, persistentVolumeClaim and dataVolume"
type KubeVirtDisk struct {
	// The name of the disk in the machine.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self != 'cloud-init'",message="spec.runtime.kubevirt.create.disks: the name cloud-init is reserved for the disk of cloudInit"
	Name string `json:"name"`

	// An image in an OCI registry. What the guest writes is lost when the machine is
	// powered off. Set this, persistentVolumeClaim or dataVolume.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ContainerDisk string `json:"containerDisk,omitempty"`

	// A PersistentVolumeClaim in the namespace of the VirtualMachine, by name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PersistentVolumeClaim string `json:"persistentVolumeClaim,omitempty"`

	// A DataVolume of CDI in the namespace of the VirtualMachine, by name. The machine
	// starts when its import is complete.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DataVolume string `json:"dataVolume,omitempty"`
}

// KubeVirtNetwork is a network of a machine that is created.
type KubeVirtNetwork struct {
	// The name of the network interface in the machine.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// A NetworkAttachmentDefinition of Multus, in the namespace of the VirtualMachine,
	// to which the machine is bridged. Default: the Pod network, with address
	// translation.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	NetworkAttachmentDefinition string `json:"networkAttachmentDefinition,omitempty"`
}

// KubeVirtCloudInit is the data for cloud-init in the guest of a machine that is
// created.
type KubeVirtCloudInit struct {
	// The Secret with the user data, in the namespace of the VirtualMachine, under the
	// key userdata. KubeVirt reads it at each power-on. A user who creates the
	// VirtualMachine needs the right to read it.
	// +required
	SecretRef CloudInitSecretReference `json:"secretRef"`
}
