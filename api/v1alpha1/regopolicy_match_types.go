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

// PolicyMatch says which requests a policy evaluates. All policies share one webhook
// configuration, in which a policy must not need more than 64 KiB.
//
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || self.resources.map(r, size(r.apiGroups) * size(r.resources)).sum() <= 512",message="spec.match.resources must name at most 512 resources in all: every entry of apiGroups counts with every entry of resources"
type PolicyMatch struct {
	// The resources and operations. A request must match one entry.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Resources []PolicyResources `json:"resources"`

	// The labels of the namespaces whose requests are evaluated. Absent or empty,
	// the default, means every namespace. It does not apply to cluster-scoped
	// objects, except that a Namespace is selected by its own labels, before or
	// after the request.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || size(self.matchLabels) <= 64",message="spec.match.namespaceSelector.matchLabels must have at most 64 labels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 64 && self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64)",message="spec.match.namespaceSelector.matchExpressions must have at most 64 entries, each with at most 64 values"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// The labels of the objects whose requests are evaluated, before or after the
	// request. Absent or empty, the default, means every object. For a subresource,
	// the object in the request counts: a Scale, for example, has no labels. Not
	// allowed with CONNECT, which has no object.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || size(self.matchLabels) <= 64",message="spec.match.objectSelector.matchLabels must have at most 64 labels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 64 && self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64)",message="spec.match.objectSelector.matchExpressions must have at most 64 entries, each with at most 64 values"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// CEL expressions that a request must meet, all of them, for the API server to send it to
	// the policy. They are the matchConditions of its webhook, with the variables request,
	// object (null for DELETE), oldObject (null for CREATE and CONNECT) and authorizer. They
	// only reduce the number of requests. A denial must not depend on them, because reconcilers,
	// the background audit and the webhooks for Sallyport's own kinds ignore them. With onError
	// Deny, an expression that fails denies the request: guard fields that may be missing with
	// has() or an optional.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Conditions []MatchCondition `json:"conditions,omitempty"`

	// Namespaces whose requests are not evaluated, by exact name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`

	// Users whose requests are not evaluated, by exact name, such as
	// system:serviceaccount:ci:runner.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	ExcludeUsers []string `json:"excludeUsers,omitempty"`

	// Groups whose members' requests are not evaluated, by exact name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	ExcludeGroups []string `json:"excludeGroups,omitempty"`
}

// MatchCondition is a CEL expression that a request must meet.
type MatchCondition struct {
	// Its name, which errors contain.
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

// PolicyResources is a set of resources and operations.
type PolicyResources struct {
	// API groups; "" is the core group and "*" means all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	// +kubebuilder:validation:XValidation:rule="self.size() == 1 || !('*' in self)",message="spec.match.resources.apiGroups must have no other group beside *"
	APIGroups []string `json:"apiGroups"`

	// API versions; "*" means all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z]([-a-z0-9]*[a-z0-9])?)$`
	APIVersions []string `json:"apiVersions"`

	// Resources in the plural, such as pods, or with a subresource, such as
	// deployments/scale.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z0-9]([-.a-z0-9]*[a-z0-9])?)(/(\*|[a-z0-9]([-.a-z0-9]*[a-z0-9])?))?$`
	Resources []string `json:"resources"`

	// The operations: CREATE, UPDATE, DELETE; or CONNECT for pods/exec, pods/attach,
	// pods/portforward, pods/proxy, services/proxy and nodes/proxy, for which it is
	// the only one. Patch rules are not evaluated for DELETE and CONNECT.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Operations []MatchOperation `json:"operations"`
}
