package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Keys of the Secret that a VSphereServer's credentialsSecretRef names.
const (
	// CredentialsUsernameKey holds the user, such as sallyport@vsphere.local.
	CredentialsUsernameKey = "username"
	// CredentialsPasswordKey holds the user's password.
	CredentialsPasswordKey = "password"
)

// AnnotationAcceptVCenter on a VSphereServer has the instance UUID of the vCenter to use although status.instanceUUID has another one.
const AnnotationAcceptVCenter = "sallyport.dev/accept-vcenter"

// InventoryPath is a place in vCenter's inventory, such as /datacenter/vm/team-a. A slash in a name is written %2f, as
// vCenter does.
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/]+)+$')",message="must be an inventory path such as /datacenter/vm/folder: from the root, without empty elements and without a trailing slash"
// +kubebuilder:validation:XValidation:rule="!self.matches('/[.][.]?(/|$)')",message="must not have . or .. as an element"
type InventoryPath string

// VSphereServerSpec is a vCenter and the namespaces that may use it.
// Administrators own it.
type VSphereServerSpec struct {
	// The URL of the vCenter, such as https://vcenter.example.org. The path is empty
	// or /sdk. It contains no user: the credentials are in the Secret that
	// credentialsSecretRef names.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="spec.url must begin with https://: credentials are never sent unencrypted"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="spec.url must not contain a user or a password: put them into the Secret that spec.credentialsSecretRef names"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('https://') || self.contains('@') || self.matches('^https://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[[][0-9A-Fa-f:.]+[]])(:[0-9]{1,5})?(/|/sdk)?$')",message="spec.url must be https://host or https://host:port, optionally followed by /sdk"
	URL string `json:"url"`

	// How Sallyport verifies the certificate of the vCenter. The verification cannot
	// be skipped.
	// +required
	Trust VSphereTrust `json:"trust"`

	// The Secret with the user and the password, in the namespace that Sallyport is
	// installed in, under the keys username and password. It can be created later
	// and changed at any time.
	// +required
	CredentialsSecretRef CredentialsSecretReference `json:"credentialsSecretRef"`

	// Which namespaces may use which part of the vCenter. A namespace that no entry
	// matches may use nothing; one that several match may use what each of them
	// allows. Default none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Tenants []VSphereTenant `json:"tenants,omitempty"`
}

// VSphereTrust says how the certificate of the vCenter is verified.
//
// +kubebuilder:validation:XValidation:rule="has(self.caBundle) != has(self.thumbprint)",message="spec.trust needs exactly one of caBundle and thumbprint"
type VSphereTrust struct {
	// Certificates of authorities in PEM. The vCenter's certificate must be
	// signed by one of them, be for the host in spec.url, and not have expired.
	// Set this or thumbprint.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="spec.trust.caBundle must have a certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"
	CABundle string `json:"caBundle,omitempty"`

	// The SHA-256 of the vCenter's certificate, as 32 pairs of hex digits with
	// colons between them. Nothing else of the certificate is verified, so this must
	// change whenever the certificate does. Set this or caBundle.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=95
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){31}$')",message="spec.trust.thumbprint must be the SHA-256 of the certificate, 32 pairs of hex digits with colons between them: openssl x509 -noout -fingerprint -sha256 prints it"
	Thumbprint string `json:"thumbprint,omitempty"`
}

// CredentialsSecretReference names a Secret in the namespace that Sallyport is
// installed in.
type CredentialsSecretReference struct {
	// The name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// VSphereTenant is the part of a vCenter that some namespaces may use. To create a
// machine, one entry must allow all of its folder, resource pool, datastore, storage
// policy, networks and template.
//
// +kubebuilder:validation:XValidation:rule="!self.adopt || has(self.folders) && size(self.folders) > 0",message="adopt: true needs at least one entry in folders: only machines below them can be adopted"
type VSphereTenant struct {
	// The name of the entry.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// The namespaces that the entry is for.
	// +required
	Namespaces TenantNamespaces `json:"namespaces"`

	// Folders of machines, by inventory path, such as /datacenter/vm/team-a. The
	// namespaces may use machines in them and in folders below them. Default none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Folders []InventoryPath `json:"folders,omitempty"`

	// Resource pools that machines may be created in, by inventory path, such as
	// /datacenter/host/cluster/Resources/team-a, and pools below them. The path of a
	// cluster means all pools in it. Default none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	ResourcePools []InventoryPath `json:"resourcePools,omitempty"`

	// Datastores that machines may be created on, by inventory path, such as
	// /datacenter/datastore/fast, or folders of datastores. Default none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Datastores []InventoryPath `json:"datastores,omitempty"`

	// VM storage policies that machines may be created with, by name. A machine without
	// one has the default policy of its datastore. Default none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=80
	StoragePolicies []string `json:"storagePolicies,omitempty"`

	// Networks that created machines may be connected to, by inventory path, such as
	// /datacenter/network/team-a, or folders of networks. Default none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Networks []InventoryPath `json:"networks,omitempty"`

	// Templates that machines may be cloned from, by inventory path, such as
	// /datacenter/vm/templates/ubuntu-24.04, or folders of templates. Default none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Templates []InventoryPath `json:"templates,omitempty"`

	// Tags of vCenter that templates may be given. Default none.
	// +optional
	// +listType=map
	// +listMapKey=category
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Tags []VSphereTag `json:"tags,omitempty"`

	// A limit for the total of the machines under this entry, created or adopted.
	// Default: no limit.
	// +optional
	Quota *VSphereQuota `json:"quota,omitempty"`

	// Whether a VirtualMachine may adopt a machine that exists below one of the
	// folders. Default false.
	// +optional
	// +kubebuilder:default=false
	Adopt bool `json:"adopt"`
}

// VSphereQuota limits the total of the VirtualMachines that the namespaces of an
// entry clone into its folders.
type VSphereQuota struct {
	// The number of machines. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Machines *int32 `json:"machines,omitempty"`

	// The number of virtual processors. With this limit, each machine must set
	// spec.cpu. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CPU *int32 `json:"cpu,omitempty"`

	// The amount of memory, such as 256Gi. With this limit, each machine must set
	// spec.memory. Default: no limit.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// TenantNamespaces chooses namespaces.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) != has(self.selector)",message="namespaces needs exactly one of names and selector"
type TenantNamespaces struct {
	// The namespaces by name. Set this or selector.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names,omitempty"`

	// The namespaces by their labels; an empty selector is every namespace. A user
	// who may change the labels of a namespace can make it a tenant. Set this or
	// names.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// VSphereServerStatus is the observed state of a vCenter.
type VSphereServerStatus struct {
	// The metadata.generation that the rest of the status is based on. Set by the
	// VSphereServer reconciler, like everything here.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready is true when the vCenter answers and accepts the credentials. The rest
	// of the status is then current; otherwise it is the last known state.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The version of the vCenter, such as 8.0.3.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// The UUID of the vCenter, which does not depend on its address.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InstanceUUID string `json:"instanceUUID,omitempty"`

	// The ESXi hosts of the vCenter, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2500
	Hosts []VSphereHost `json:"hosts,omitempty"`

	// The templates and places for new machines. Only those that an entry of
	// spec.tenants allows are listed. While Ready is true, a VirtualMachine that
	// names a place that is missing from a complete list is denied.
	// +optional
	Inventory *VSphereInventory `json:"inventory,omitempty"`

	// Machines in the folders of spec.tenants whose mark names a VirtualMachine that
	// does not exist in this cluster: its finalizer was removed, or it belongs to
	// another cluster. Sallyport does not change them. At most 20 are listed.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=20
	Orphans []VSphereOrphan `json:"orphans,omitempty"`

	// The number of these machines.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OrphanCount int32 `json:"orphanCount,omitempty"`
}

// VSphereOrphan is a machine whose VirtualMachine does not exist.
type VSphereOrphan struct {
	// The inventory path of the machine.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path"`

	// The UID of the VirtualMachine, according to the mark on the machine.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	UID types.UID `json:"uid,omitempty"`

	// The namespace and name of the VirtualMachine, according to the mark.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	VirtualMachine string `json:"virtualMachine,omitempty"`
}

// VSphereInventory lists the objects of a vCenter that the tenants may use, by the
// field of a tenant that allows them.
type VSphereInventory struct {
	// The templates.
	// +required
	Templates VSpherePlaces `json:"templates"`

	// The folders for machines.
	// +required
	Folders VSpherePlaces `json:"folders"`

	// The resource pools, clusters and standalone hosts.
	// +required
	ResourcePools VSpherePlaces `json:"resourcePools"`

	// The datastores.
	// +required
	Datastores VSpherePlaces `json:"datastores"`

	// The networks.
	// +required
	Networks VSpherePlaces `json:"networks"`
}

// VSpherePlaces are the places of one kind.
type VSpherePlaces struct {
	// Whether paths has every place of the kind. It is false if there are more than
	// 300, or if vCenter does not show the path of one of them.
	// +required
	Complete bool `json:"complete"`

	// The inventory paths, in alphabetical order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=300
	// +kubebuilder:validation:items:MaxLength=512
	Paths []string `json:"paths,omitempty"`
}

// VSphereHost is an ESXi host of a vCenter.
type VSphereHost struct {
	// The name of the host in vCenter. It is the node name of machines on it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The cluster that the host is in. For a standalone host it is the name of the
	// host.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`

	// Whether vCenter is connected to the host. Machines can be moved only to a
	// connected host.
	// +required
	Connected bool `json:"connected"`

	// Whether the host is in maintenance mode: machines must not run there.
	// +required
	InMaintenance bool `json:"inMaintenance"`
}

// VSphereServer is a vCenter for VirtualMachines: its URL and credentials, and
// which namespaces may use which part of it. Only administrators can write it; the
// policy servers-tenancy decides what a namespace may do with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=vsphereservers,shortName=svsrv,categories=sallyport
// +kubebuilder:selectablefield:JSONPath=`.spec.url`
// +kubebuilder:selectablefield:JSONPath=`.spec.credentialsSecretRef.name`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`,description="Where the vCenter is."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether it answers and takes the credentials."
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not, in one word."
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,description="Its version, as last seen."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type VSphereServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The vCenter and who may use it. Administrators own it.
	// +required
	Spec VSphereServerSpec `json:"spec"`

	// The observed state of the vCenter.
	// +optional
	Status VSphereServerStatus `json:"status,omitzero"`
}

// VSphereServerList is a list of VSphereServers.
//
// +kubebuilder:object:root=true
type VSphereServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// The vCenters.
	Items []VSphereServer `json:"items"`
}
