package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VSphereTemplateFinalizer keeps a VSphereTemplate until its templates are removed from its vCenter. The policy `defaults` adds it, the
// template reconciler removes it.
const VSphereTemplateFinalizer = "sallyport.dev/vsphere-template"

// VSphereTemplateSpec is the desired state of a template. Users own it.
//
// +kubebuilder:validation:XValidation:rule="size(self.name) + size(self.release) < 80",message="spec.name and spec.release are too long together: a version that is replaced is named <name>-<release>, and vCenter allows 80 characters"
type VSphereTemplateSpec struct {
	// The vCenter, as an administrator has declared it.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.serverRef cannot change: create another VSphereTemplate instead"
	ServerRef VSphereServerReference `json:"serverRef"`

	// The name of the template in vCenter, in the folder of each failure domain. From
	// the first release on, a complete template of this name always exists.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=78
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.name cannot change: create another VSphereTemplate instead"
	Name string `json:"name"`

	// The source of the template.
	// +required
	Source VSphereTemplateSource `json:"source"`

	// Which release of the template this is, such as 24.04-20261101. The present
	// release is replaced once the new one is complete. To roll back, set the name
	// of a release that was kept.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	Release string `json:"release"`

	// Where the template is created. Each failure domain has a template of its own,
	// and does not wait for the others.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.folder == a.folder))",message="spec.failureDomains: each needs a folder of its own, because the templates have the same name"
	FailureDomains []VSphereFailureDomain `json:"failureDomains"`

	// The format of the disks of the template: Thin, Thick or EagerZeroedThick.
	// Default: that of the template that is replaced, or Thin for the first one.
	// +optional
	DiskType VSphereDiskType `json:"diskType,omitempty"`

	// The firmware of the template: BIOS or EFI. Default: as in the source.
	// +optional
	Firmware VSphereFirmware `json:"firmware,omitempty"`

	// Whether secure boot is enabled. It needs the firmware EFI. Default: as in the
	// source.
	// +optional
	SecureBoot *bool `json:"secureBoot,omitempty"`

	// Tags of vCenter for the template. They are attached before the template gets
	// its name, and must exist.
	// +optional
	// +listType=map
	// +listMapKey=category
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Tags []VSphereTag `json:"tags,omitempty"`

	// How many replaced releases are kept, as <name>-<release>. The oldest ones are
	// destroyed first. Default 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	KeepVersions int32 `json:"keepVersions"`

	// Whether the templates are left as they are. A replacement that has started is
	// finished first, so that the name of the template is never missing. Default
	// false.
	// +optional
	// +kubebuilder:default=false
	Paused bool `json:"paused"`
}

// VSphereTemplateSource is the source of a template.
type VSphereTemplateSource struct {
	// The URL of the OVA, such as https://images.example.org/ubuntu-24.04.ova.
	// Addresses of the cluster itself are rejected.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="spec.source.url must begin with https://"
	// +kubebuilder:validation:XValidation:rule="isURL(self) && !self.contains('@')",message="spec.source.url must be a URL without a user or a password"
	URL string `json:"url"`

	// The SHA-256 of the OVA, in hex. An OVA with another SHA-256 is not imported.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`

	// Certificates of authorities in PEM, one of which must have signed the
	// certificate of the host in url. Default: the authorities of the system.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----')",message="spec.source.caBundle must have a certificate in PEM, which begins with -----BEGIN CERTIFICATE-----"
	CABundle string `json:"caBundle,omitempty"`
}

// VSphereFailureDomain is a part of a vCenter that has a template of its own.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a failure domain cannot change: remove it, and add one with another name"
type VSphereFailureDomain struct {
	// The name of the failure domain.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// The folder that the template is in, by inventory path, such as
	// /datacenter/vm/templates.
	// +required
	Folder InventoryPath `json:"folder"`

	// The resource pool that the template is imported through, by inventory path, such
	// as /datacenter/host/cluster/Resources/team-a. The path of a cluster or of a
	// standalone host means its root resource pool.
	// +required
	ResourcePool InventoryPath `json:"resourcePool"`

	// The datastore for the files of the template, by inventory path, such as
	// /datacenter/datastore/fast.
	// +required
	Datastore InventoryPath `json:"datastore"`

	// The network of the template's adapter, by inventory path, such as
	// /datacenter/network/team-a.
	// +required
	Network InventoryPath `json:"network"`
}

// VSphereDiskType is the format of the disks of a template.
//
// +kubebuilder:validation:Enum=Thin;Thick;EagerZeroedThick
type VSphereDiskType string

const (
	// VSphereDiskThin allocates space on the datastore as the guest writes.
	VSphereDiskThin VSphereDiskType = "Thin"
	// VSphereDiskThick allocates all space at creation, and zeroes it when the guest first writes.
	VSphereDiskThick VSphereDiskType = "Thick"
	// VSphereDiskEagerZeroedThick allocates and zeroes all space at creation.
	VSphereDiskEagerZeroedThick VSphereDiskType = "EagerZeroedThick"
)

// VSphereFirmware is the firmware of a machine.
//
// +kubebuilder:validation:Enum=BIOS;EFI
type VSphereFirmware string

const (
	// VSphereFirmwareBIOS is the legacy BIOS.
	VSphereFirmwareBIOS VSphereFirmware = "BIOS"
	// VSphereFirmwareEFI is EFI, which secure boot needs.
	VSphereFirmwareEFI VSphereFirmware = "EFI"
)

// VSphereTag is a tag of vCenter.
type VSphereTag struct {
	// The category.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Category string `json:"category"`

	// The tag in that category.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
}

// VSphereTemplateStep is what is being done in a failure domain.
//
// +kubebuilder:validation:Enum=Waiting;Downloading;Importing;Finishing;Replacing;Removing;Done
type VSphereTemplateStep string

const (
	// VSphereTemplateWaiting means that the next step is blocked: the condition Ready says why.
	VSphereTemplateWaiting VSphereTemplateStep = "Waiting"
	// VSphereTemplateDownloading means that the OVA is being downloaded.
	VSphereTemplateDownloading VSphereTemplateStep = "Downloading"
	// VSphereTemplateImporting means that the OVA is being imported under another name.
	VSphereTemplateImporting VSphereTemplateStep = "Importing"
	// VSphereTemplateFinishing means that the imported machine is being converted to a
	// template.
	VSphereTemplateFinishing VSphereTemplateStep = "Finishing"
	// VSphereTemplateReplacing means that the new template is being given the name.
	VSphereTemplateReplacing VSphereTemplateStep = "Replacing"
	// VSphereTemplateRemoving means that the template is in place, and the replaced one is being destroyed.
	VSphereTemplateRemoving VSphereTemplateStep = "Removing"
	// VSphereTemplateDone means that nothing is left to do.
	VSphereTemplateDone VSphereTemplateStep = "Done"
)

// VSphereTemplateStatus is the observed state of the templates. The template reconciler owns it.
type VSphereTemplateStatus struct {
	// The metadata.generation that the rest of the status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The failure domains.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	FailureDomains []VSphereFailureDomainStatus `json:"failureDomains,omitempty"`

	// The state of the templates in detail. Ready is true when each failure domain
	// has the release of the spec under the name of the spec.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VSphereFailureDomainStatus is the observed state of a template in a failure domain.
type VSphereFailureDomainStatus struct {
	// The failure domain.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// The folder of the templates. It stays when the failure domain is removed from the
	// spec, until the templates are removed.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Folder string `json:"folder,omitempty"`

	// What is being done: Waiting, Downloading, Importing, Finishing, Replacing,
	// Removing or Done.
	// +optional
	Step VSphereTemplateStep `json:"step,omitempty"`

	// The progress of the step in percent, if known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Progress *int32 `json:"progress,omitempty"`

	// The release that has the name of the spec. Empty before the first release is
	// complete.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Release string `json:"release,omitempty"`

	// The managed object ID of that template in vCenter, such as vm-1024.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	MoRef string `json:"moRef,omitempty"`

	// The instance UUID of that template.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InstanceUUID string `json:"instanceUUID,omitempty"`

	// The instance UUIDs of the templates that Sallyport imported here, written before
	// each import. What has a mark of this VSphereTemplate in vCenter and another UUID
	// is not used, changed or destroyed: anyone who can edit it can write the mark.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	Imported []string `json:"imported,omitempty"`

	// The size of that template on its datastore.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// The releases that exist as complete templates, including the current one,
	// newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Versions []VSphereTemplateVersion `json:"versions,omitempty"`

	// The UIDs of earlier VSphereTemplates of this namespace and name whose templates
	// in the folder were taken over, as after a restore.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=64
	FormerUIDs []string `json:"formerUIDs,omitempty"`

	// The state of the failure domain. Ready is true when it has the release of the
	// spec under the name of the spec.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=4
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VSphereTemplateVersion is a complete template.
type VSphereTemplateVersion struct {
	// Its release.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Release string `json:"release"`

	// Its name in the folder.
	// +required
	// +kubebuilder:validation:MaxLength=80
	Name string `json:"name"`
}

// VSphereTemplate is a template of a vCenter, in one or more failure domains. Its next release replaces it atomically: until the next
// release is complete, the current one keeps the name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=vspheretemplates,shortName=svst,categories=sallyport
// +kubebuilder:selectablefield:JSONPath=`.spec.serverRef.name`
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.serverRef.name`,description="The vCenter."
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.name`,description="What it is called in vCenter."
// +kubebuilder:printcolumn:name="Release",type=string,JSONPath=`.spec.release`,description="The release that is wanted."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether every failure domain has it."
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready or not, in one word."
// +kubebuilder:printcolumn:name="Step",type=string,priority=1,JSONPath=`.status.failureDomains[*].step`,description="What is being done in each failure domain."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type VSphereTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The desired state of the template.
	// +required
	Spec VSphereTemplateSpec `json:"spec"`

	// The observed state of the templates.
	// +optional
	Status VSphereTemplateStatus `json:"status,omitzero"`
}

// Place returns the failure domain of that name, nil if the spec has none.
func (s *VSphereTemplateSpec) Place(name string) *VSphereFailureDomain {
	for i := range s.FailureDomains {
		if s.FailureDomains[i].Name == name {
			return &s.FailureDomains[i]
		}
	}
	return nil
}

// Meant returns the failure domain that a reference names, or the only one if it names none; nil if it does not exist.
func (s *VSphereTemplateSpec) Meant(failureDomain string) *VSphereFailureDomain {
	if failureDomain == "" && len(s.FailureDomains) == 1 {
		return &s.FailureDomains[0]
	}
	return s.Place(failureDomain)
}

// FormerIn returns the UIDs of earlier VSphereTemplates whose templates the failure domain took over.
func (s *VSphereTemplateStatus) FormerIn(failureDomain string) []string {
	for i := range s.FailureDomains {
		if s.FailureDomains[i].Name == failureDomain {
			return s.FailureDomains[i].FormerUIDs
		}
	}
	return nil
}

// ReleaseIn returns the release that the failure domain has under the name of the spec, or "" before the first one.
func (s *VSphereTemplateStatus) ReleaseIn(failureDomain string) string {
	for i := range s.FailureDomains {
		if s.FailureDomains[i].Name == failureDomain {
			return s.FailureDomains[i].Release
		}
	}
	return ""
}

// ImportedIn returns the instance UUIDs of what was imported in the failure domain; of a status without them, that of the present template.
func (s *VSphereTemplateStatus) ImportedIn(failureDomain string) []string {
	for i := range s.FailureDomains {
		switch d := &s.FailureDomains[i]; {
		case d.Name != failureDomain:
		case len(d.Imported) > 0:
			return d.Imported
		case d.InstanceUUID != "":
			return []string{d.InstanceUUID}
		}
	}
	return nil
}

// ReadyIn returns the release of the spec once the failure domain has it under the name of the spec, as observed since the spec last
// changed. Before that, and while vCenter is unavailable, it returns "".
func (t *VSphereTemplate) ReadyIn(failureDomain string) string {
	for i := range t.Status.FailureDomains {
		d := &t.Status.FailureDomains[i]
		ready := ConditionReady.In(d.Conditions)
		if d.Name == failureDomain && ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == t.Generation {
			return d.Release
		}
	}
	return ""
}

// VSphereTemplateList is a list of VSphereTemplates.
//
// +kubebuilder:object:root=true
type VSphereTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// The templates.
	Items []VSphereTemplate `json:"items"`
}
