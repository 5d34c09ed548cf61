package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PolicyMode says what a denial of a policy does.
//
// +kubebuilder:validation:Enum=Enforce;Warn;Audit
type PolicyMode string

const (
	// ModeEnforce refuses the request.
	ModeEnforce PolicyMode = "Enforce"
	// ModeWarn lets the request pass and warns the requester.
	ModeWarn PolicyMode = "Warn"
	// ModeAudit lets the request pass and only records the denial.
	ModeAudit PolicyMode = "Audit"
)

// PolicyErrorAction says what happens to a request that a policy could not
// judge.
//
// +kubebuilder:validation:Enum=Deny;Allow
type PolicyErrorAction string

const (
	// OnErrorDeny refuses the request.
	OnErrorDeny PolicyErrorAction = "Deny"
	// OnErrorAllow lets the request pass.
	OnErrorAllow PolicyErrorAction = "Allow"
)

// BackgroundAudit says whether existing objects are held against a policy.
//
// +kubebuilder:validation:Enum=Disabled;Enabled
type BackgroundAudit string

const (
	// AuditDisabled looks at requests only.
	AuditDisabled BackgroundAudit = "Disabled"
	// AuditEnabled looks at the objects that exist, too.
	AuditEnabled BackgroundAudit = "Enabled"
)

// RegoPolicySpec is a policy: its Rego, what it is asked about and how it is
// enforced.
//
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.match)",message="spec.match is not allowed with library: true, because a library is never asked"
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.reads)",message="spec.reads is not allowed with library: true, because a library asks for no facts"
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.parameters)",message="spec.parameters is not allowed with library: true: give parameters to the policies that import it"
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.parametersSchema)",message="spec.parametersSchema is not allowed with library: true: a library has no parameters"
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.namespaceModes)",message="spec.namespaceModes is not allowed with library: true, because a library is never asked"
// +kubebuilder:validation:XValidation:rule="self.library || has(self.match)",message="spec.match.resources is required unless library is true"
// +kubebuilder:validation:XValidation:rule="self.library == (self.__package__ == 'sallyport.lib' || self.__package__.startsWith('sallyport.lib.'))",message="spec.package must be sallyport.lib or below for a library, and must not be for any other policy"
type RegoPolicySpec struct {
	// The Rego package that holds the outcome rules (deny, warn, patch, outcome),
	// dotted and in lower case, such as sallyport.operations.supersede. A
	// library's is sallyport.lib or below.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`
	Package string `json:"package"`

	// What a denial does: Enforce (the default) refuses the request, Warn lets it
	// pass with a warning, Audit lets it pass and records the denial. It governs
	// nothing but denials: what reconcilers ask of the policy always counts.
	// +optional
	// +kubebuilder:default=Enforce
	Mode PolicyMode `json:"mode,omitempty"`

	// Other modes for some namespaces: the first entry that selects a request's
	// namespace counts, and spec.mode for all others and for cluster-scoped
	// objects. So a policy can be tried out in one namespace, or be made strict in
	// one after the other. Not allowed with library.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	NamespaceModes []NamespaceMode `json:"namespaceModes,omitempty"`

	// Who may have a request pass in spite of a denial, by the annotation
	// sallyport.dev/override: Users (the default) who hold the verb override on
	// this RegoPolicy and are no service accounts, Everybody who holds it, or
	// Nobody.
	// +optional
	// +kubebuilder:default=Users
	Override PolicyOverride `json:"override,omitempty"`

	// What happens to a request that the policy could not judge, because of an
	// evaluation error, a fact that could not be read, a timeout, or an input
	// that it does not understand: Deny (the default) refuses it, Allow lets it
	// pass.
	// +optional
	// +kubebuilder:default=Deny
	OnError PolicyErrorAction `json:"onError,omitempty"`

	// How many milliseconds one decision may take, facts included. Default 500,
	// at most 4000 because the API server itself waits for five seconds.
	// +optional
	// +kubebuilder:default=500
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=4000
	TimeoutMilliseconds int32 `json:"timeoutMilliseconds,omitempty"`

	// Which requests the policy is asked about. Required unless library is true,
	// and not allowed then.
	// +optional
	Match *PolicyMatch `json:"match,omitempty"`

	// The kinds that the policy's facts may ask for; it can read no others.
	// Watches, indexes and permissions follow from this list. Not allowed with
	// library.
	// +optional
	// +listType=map
	// +listMapKey=apiVersion
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=32
	Reads []PolicyRead `json:"reads,omitempty"`

	// What the modules see as data.parameters: any object. Tests do not see it;
	// they say which parameters they mean. Not allowed with library.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// A JSON schema, as a CustomResourceDefinition has them in openAPIV3Schema,
	// that parameters must conform to. An edit of the parameters that does not is
	// refused with the field's path. The word x-sallyport-weakens, Added or Removed,
	// beside a parameter says which entries of it weaken a shipped policy. Not
	// allowed with library.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	ParametersSchema *runtime.RawExtension `json:"parametersSchema,omitempty"`

	// Whether the objects that exist are held against the policy, too, on a
	// schedule and whenever it changes: Enabled or Disabled (the default). Each is
	// judged as if it were created at that moment by nobody in particular; nothing
	// is refused, status.violations has what was found. It concerns the resources
	// that spec.match names with CREATE.
	// +optional
	// +kubebuilder:default=Disabled
	BackgroundAudit BackgroundAudit `json:"backgroundAudit,omitempty"`

	// The Rego of the policy, at least one module.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Modules []PolicyModule `json:"modules"`

	// The tests of the policy, in the package of the policy with _test appended.
	// They run when the policy is written, which is refused if one fails, and with
	// "sallyport policy test".
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Tests []PolicyTest `json:"tests,omitempty"`

	// Whether this is a library: modules at or below sallyport.lib for other
	// policies to import, and nothing else. Default false.
	// +optional
	// +kubebuilder:default=false
	Library bool `json:"library,omitempty"`
}

// NamespaceMode is a mode for some namespaces.
type NamespaceMode struct {
	// The labels of the namespaces. An empty selector selects all.
	// +required
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`

	// What a denial does there.
	// +required
	Mode PolicyMode `json:"mode"`
}

// ReadFreshness is where the answers to facts come from.
//
// +kubebuilder:validation:Enum=Cached;Live
type ReadFreshness string

const (
	// ReadCached watches the kind and answers from memory, unless a fact asks for
	// a live answer.
	ReadCached ReadFreshness = "Cached"
	// ReadLive asks the API server each time.
	ReadLive ReadFreshness = "Live"
)

// PolicyRead is a kind that the facts of a policy may ask for.
type PolicyRead struct {
	// The group and version of the kind, such as apps/v1, or v1 for the core
	// group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// The kind, such as Deployment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// The fields that facts select by, as dotted paths, such as
	// spec.virtualMachineName. Behind the name of a list, [] stands for any of its
	// elements: spec.disks[].name. For facts that select by several fields
	// together, separate them with commas: spec.poolName,spec.nodeName. At most one
	// of them may go through lists. Each entry becomes an index.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([^],.[]+([.][^],.[]+)*,)*[^],.[]+([[][]])?([.][^],.[]+([[][]])?)*(,[^],.[]+([.][^],.[]+)*)*$`
	Indexes []string `json:"indexes,omitempty"`

	// Cached (the default) watches the kind, and facts are answered from memory
	// unless they say otherwise. Live watches nothing and asks the API server each
	// time: for what is asked rarely and is there in great numbers, such as
	// everything in a namespace that is being deleted.
	// +optional
	// +kubebuilder:default=Cached
	Freshness ReadFreshness `json:"freshness,omitempty"`
}

// PolicyModule is one Rego file of a policy.
type PolicyModule struct {
	// The file's name, which ends in .rego but not in _test.rego. Errors name it.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9_.-]*\.rego$`
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('_test.rego')",message="spec.modules[].name must not end in _test.rego: tests belong into spec.tests"
	Name string `json:"name"`

	// The file's content, at most 262144 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Source string `json:"source"`
}

// PolicyTest is one Rego file of tests of a policy.
type PolicyTest struct {
	// The file's name, which ends in _test.rego. Errors name it.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9_.-]*_test\.rego$`
	Name string `json:"name"`

	// The file's content, at most 262144 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Source string `json:"source"`
}

// RegoPolicyStatus is whether a policy is in force, and why not.
type RegoPolicyStatus struct {
	// The metadata.generation that the rest of the status was made from. Set by
	// the policy reconciler, like everything here.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The revision that decides at the moment: a hash of the policy and of the
	// libraries that it imports. Decision records carry it. After an edit that
	// does not compile it stays the last good one; empty if there has been none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ActiveRevision string `json:"activeRevision,omitempty"`

	// When Sallyport last confirmed this status. While a replica leads it is
	// renewed every five minutes; an older time says that nobody keeps the status,
	// and that the rest of it may not be true any more.
	// +optional
	ReportedAt *metav1.Time `json:"reportedAt,omitempty"`

	// The state of the policy in detail: Ready (its current generation decides
	// about every request that it names, on every replica: it compiles, its tests
	// passed, what it reads is granted, and the API server asks it), Compiled, TestsPassed, ReadsGranted, Active (it decides, in its current or
	// its last good revision), Shipped (what this release ships has been applied)
	// and Edited (it differs from that because somebody edited it).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The fields of spec that differ from what this release ships because somebody
	// changed, added or removed them, such as spec.mode or
	// spec.modules[supersede.rego].source: the first 64. Empty if none does, or if
	// the policy is not shipped.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	EditedFields []string `json:"editedFields,omitempty"`

	// The result of the policy's own tests, when they last ran.
	// +optional
	Tests *PolicyTestResult `json:"tests,omitempty"`

	// What of the objects that exist the policy would refuse. Absent unless
	// spec.backgroundAudit is Enabled.
	// +optional
	Violations *PolicyViolations `json:"violations,omitempty"`

	// How far the audit is that looks at the objects at the moment. Absent if none
	// does, or if it has just begun.
	// +optional
	Auditing *PolicyAudit `json:"auditing,omitempty"`
}

// PolicyAudit is an audit that is under way.
type PolicyAudit struct {
	// When it began.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// The resource whose objects it looks at, such as deployments.apps.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Resource string `json:"resource,omitempty"`

	// How many objects it has looked at so far, of all resources.
	// +required
	// +kubebuilder:validation:Minimum=0
	Objects int32 `json:"objects"`
}

// PolicyViolations is the result of holding the objects that exist against a
// policy.
type PolicyViolations struct {
	// When all objects were looked at. What has changed since then is looked at
	// when it changes.
	// +required
	AuditedAt metav1.Time `json:"auditedAt"`

	// The annotation sallyport.dev/audit-requested-at of the policy as that audit
	// found it: the audit that it asks for is this one, or has not been made yet.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Requested string `json:"requested,omitempty"`

	// The revision of the policy that they were held against.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision,omitempty"`

	// How many objects were looked at.
	// +required
	// +kubebuilder:validation:Minimum=0
	Objects int32 `json:"objects"`

	// How many of them the policy would refuse. Absent as long as not every object
	// was looked at: then incomplete says why, and atLeast what was found so far.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count *int32 `json:"count,omitempty"`

	// How many of those that were looked at the policy would refuse, where count is
	// absent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AtLeast int32 `json:"atLeast,omitempty"`

	// How many of them it could not judge.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Undecided int32 `json:"undecided,omitempty"`

	// Why not all objects were looked at, such as a kind that cannot be listed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Incomplete string `json:"incomplete,omitempty"`

	// Of which objects changes are not seen when they happen, but by the next audit
	// on the schedule, and why, such as a kind that cannot be watched.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Unwatched string `json:"unwatched,omitempty"`

	// The first objects that it would refuse, by kind, namespace and name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	First []PolicyViolation `json:"first,omitempty"`
}

// PolicyViolation is an object that a policy would refuse.
type PolicyViolation struct {
	// The group and version of the object's kind.
	// +required
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// The object's kind.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// The object's namespace; empty if it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// The object's name.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The reason of the denial.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// The message of the denial.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// PolicyTestResult counts tests of a policy.
type PolicyTestResult struct {
	// How many tests passed.
	// +required
	// +kubebuilder:validation:Minimum=0
	Passed int32 `json:"passed"`

	// How many tests failed or could not be run.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
}

// RegoPolicy is a policy in Rego that decides about requests to the cluster,
// with its tests, its parameters, what it is asked about and what it may read.
// An edit takes effect within a second on every replica. One that does not
// compile takes none: the last good revision goes on deciding, and the status
// says where the error is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=regopolicies,shortName=rego,categories=sallyport
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters"
// +kubebuilder:selectablefield:JSONPath=`.spec.package`
// +kubebuilder:selectablefield:JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Package",type=string,JSONPath=`.spec.package`,description="The Rego package that holds its outcome rules."
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,description="What a denial does."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether it decides about every request that it names, on every replica."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What decides, or what is missing first."
// +kubebuilder:printcolumn:name="Active",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Active")].reason`,description="What decides: its current revision, its last good one, or nothing."
// +kubebuilder:printcolumn:name="Violations",type=integer,JSONPath=`.status.violations.count`,description="How many of the objects that exist it would refuse; empty until all were looked at."
// +kubebuilder:printcolumn:name="Edited",type=string,JSONPath=`.status.conditions[?(@.type=="Edited")].status`,description="Whether somebody edited what is shipped."
// +kubebuilder:printcolumn:name="Reported",type=date,JSONPath=`.status.reportedAt`,description="Time since Sallyport last confirmed its status: more than some minutes if no replica is running."
// +kubebuilder:printcolumn:name="Revision",type=string,priority=1,JSONPath=`.status.activeRevision`,description="The revision that decides."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since its creation."
type RegoPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The policy: its Rego, what it is asked about and how it is enforced.
	// +required
	Spec RegoPolicySpec `json:"spec"`

	// Whether the policy is in force, and why not.
	// +optional
	Status RegoPolicyStatus `json:"status,omitzero"`
}

// RegoPolicyList is a list of RegoPolicies.
//
// +kubebuilder:object:root=true
type RegoPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// The policies.
	Items []RegoPolicy `json:"items"`
}
