package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MatchOperation is what a request does to an object.
//
// +kubebuilder:validation:Enum=CREATE;UPDATE;DELETE;CONNECT
type MatchOperation string

const (
	// MatchCreate is the creation of an object or of a subresource such as
	// pods/eviction.
	MatchCreate MatchOperation = "CREATE"
	// MatchUpdate is a change, by PUT or by PATCH.
	MatchUpdate MatchOperation = "UPDATE"
	// MatchDelete is a deletion.
	MatchDelete MatchOperation = "DELETE"
	// MatchConnect is a connection: kubectl exec, attach, port-forward or proxy.
	MatchConnect MatchOperation = "CONNECT"
)

// PolicyMatch says which requests a policy is asked about.
type PolicyMatch struct {
	// The resources and operations. A request that meets one entry is enough.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Resources []PolicyResources `json:"resources"`

	// The labels of the namespaces whose requests are judged. Absent or empty,
	// the default, means every namespace. Cluster-scoped objects are judged
	// whatever this says; a Namespace by its own labels, before the request or
	// after it.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// The labels of the objects whose requests are judged, as they are before
	// the request or as they would be after it. Absent or empty, the default,
	// means every object. A request for a subresource is held against the object
	// that it carries: a Scale, for one, has no labels. It is not allowed with
	// CONNECT, which carries no object.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// CEL expressions that tell which requests the API server is to ask the policy
	// about: those for which all are true. They are the matchConditions of its
	// webhook, with the variables request, object (null for DELETE), oldObject
	// (null for CREATE and CONNECT) and authorizer. They spare requests and refuse none: what
	// a policy refuses must not depend on them, because reconcilers and the
	// background audit ask it without them, as do the webhooks for Sallyport's own
	// kinds. An expression that fails refuses the request under onError Deny:
	// guard what may be missing with has() or an optional.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Conditions []MatchCondition `json:"conditions,omitempty"`

	// Namespaces whose requests are not judged, by exact name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`

	// Users whose requests are not judged, by exact name, such as
	// system:serviceaccount:ci:runner.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	ExcludeUsers []string `json:"excludeUsers,omitempty"`

	// Groups whose members' requests are not judged, by exact name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	ExcludeGroups []string `json:"excludeGroups,omitempty"`
}

// MatchCondition is a CEL expression that a request must meet.
type MatchCondition struct {
	// Its name, by which it is called where it fails.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`

	// The expression, true or false.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`
}

// PolicyResources is a set of resources and what is done to them.
type PolicyResources struct {
	// API groups; "" is the core group and "*" means all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	APIGroups []string `json:"apiGroups"`

	// API versions; "*" means all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	APIVersions []string `json:"apiVersions"`

	// Resources in the plural, such as pods, or with a subresource, such as
	// deployments/scale.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Resources []string `json:"resources"`

	// What is done to them: CREATE, UPDATE, DELETE; or CONNECT for pods/exec,
	// pods/attach, pods/portforward, pods/proxy, services/proxy and nodes/proxy,
	// for which it is the only one. Patch rules are not asked about DELETE and
	// CONNECT.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Operations []MatchOperation `json:"operations"`
}
