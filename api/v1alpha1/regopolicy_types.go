package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// BackgroundAudit says whether a policy is evaluated for existing objects.
//
// +kubebuilder:validation:Enum=Disabled;Enabled
type BackgroundAudit string

const (
	// AuditDisabled evaluates requests only.
	AuditDisabled BackgroundAudit = "Disabled"
	// AuditEnabled also evaluates existing objects.
	AuditEnabled BackgroundAudit = "Enabled"
)

// DefaultTimeoutMilliseconds is the default of spec.timeoutMilliseconds.
const DefaultTimeoutMilliseconds = 2000

// Timeout returns how long one decision may take: the default if the field is not set, as in a file that no API server has read.
func (s *RegoPolicySpec) Timeout() time.Duration {
	return time.Duration(cmp.Or(s.TimeoutMilliseconds, DefaultTimeoutMilliseconds)) * time.Millisecond
}

// RegoPolicySpec is a policy: its Rego, the requests that it matches and how it
// is enforced.
//
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.match)",message="spec.match is not allowed with library: true, because a library evaluates no requests"
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.reads)",message="spec.reads is not allowed with library: true, because a library reads no facts"
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.parameters)",message="spec.parameters is not allowed with library: true: give parameters to the policies that import it"
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.parametersSchema)",message="spec.parametersSchema is not allowed with library: true: a library has no parameters"
// +kubebuilder:validation:XValidation:rule="!self.library || !has(self.namespaceModes)",message="spec.namespaceModes is not allowed with library: true, because a library evaluates no requests"
// +kubebuilder:validation:XValidation:rule="self.library || has(self.match)",message="spec.match.resources is required unless library is true"
// +kubebuilder:validation:XValidation:rule="self.library == (self.__package__ == 'sallyport.lib' || self.__package__.startsWith('sallyport.lib.'))",message="spec.package must be sallyport.lib or below for a library, and must not be for any other policy"
type RegoPolicySpec struct {
	// The Rego package that holds the outcome rules (deny, warn, patch, outcome),
	// dotted and in lowercase, such as sallyport.operations.supersede. That of a
	// library is sallyport.lib or below.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`
	Package string `json:"package"`

	// What a denial does: Enforce (the default) denies the request, Warn admits it
	// with a warning, Audit admits it and records the denial. It applies only to
	// denials of requests: the answers of the policy to reconcilers always count.
	// +optional
	// +kubebuilder:default=Enforce
	Mode PolicyMode `json:"mode,omitempty"`

	// Other modes for some namespaces: the first entry that selects a request's
	// namespace applies, and spec.mode to all others and to cluster-scoped objects.
	// Use it to try a policy in one namespace, or to enforce it in one namespace
	// after the other. Not allowed with library.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	NamespaceModes []NamespaceMode `json:"namespaceModes,omitempty"`

	// Who may override a denial with the annotation sallyport.dev/override: Users
	// (the default) who hold the verb override on this RegoPolicy and are not
	// service accounts, Everybody who holds it, or Nobody.
	// +optional
	// +kubebuilder:default=Users
	Override PolicyOverride `json:"override,omitempty"`

	// What happens to a request that the policy could not evaluate, because of an
	// evaluation error, a fact that could not be read, a timeout, or an input that
	// it does not understand: Deny (the default) denies it, Allow admits it.
	// +optional
	// +kubebuilder:default=Deny
	OnError PolicyErrorAction `json:"onError,omitempty"`

	// What happens to a request on a kind that is not Sallyport's while no replica
	// of Sallyport answers: Fail (the default) denies it, unless onError is Allow or
	// mode is not Enforce; Ignore admits it. Requests on Sallyport's kinds follow the
	// chart value webhook.failurePolicy.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy PolicyFailureAction `json:"failurePolicy,omitempty"`

	// How many milliseconds one decision may take, facts included. Default 2000, at
	// most 4000 because the API server waits five seconds.
	// +optional
	// +kubebuilder:default=2000
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=4000
	TimeoutMilliseconds int32 `json:"timeoutMilliseconds,omitempty"`

	// The requests that the policy evaluates. Required unless library is true; not
	// allowed if library is true.
	// +optional
	Match *PolicyMatch `json:"match,omitempty"`

	// The kinds that the facts of the policy may read. Watches and indexes follow
	// from this list. Not allowed with library.
	// +optional
	// +listType=map
	// +listMapKey=apiVersion
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=32
	Reads []PolicyRead `json:"reads,omitempty"`

	// The value of data.parameters in the modules: any object. Tests do not see it;
	// they set their own parameters. Not allowed with library.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// A JSON schema, as a CustomResourceDefinition has them in openAPIV3Schema, that
	// parameters must conform to. An edit of the parameters that does not conform is
	// rejected with the path of the field. The word x-sallyport-weakens, Added or
	// Removed, beside a parameter says which entries of it weaken a shipped policy. Not
	// allowed with library.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	ParametersSchema *runtime.RawExtension `json:"parametersSchema,omitempty"`

	// Whether the policy is also evaluated for existing objects, on a schedule and
	// whenever it changes: Enabled or Disabled (the default). Each object is
	// evaluated as if it were being created, without a particular user. Nothing is
	// denied; status.violations has the results. It applies to the resources that
	// spec.match names with CREATE.
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

	// The tests of the policy, in the package of the policy with _test appended. They
	// run when the policy is written, which is denied if one fails, and with
	// "sallyport policy test".
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Tests []PolicyTest `json:"tests,omitempty"`

	// Whether this is a library: only modules at or below sallyport.lib for other
	// policies to import. Default false.
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

// ReadFreshness says where facts are read from.
//
// +kubebuilder:validation:Enum=Cached;Live
type ReadFreshness string

const (
	// ReadCached watches the kind and reads from a cache, unless a fact requests a
	// live read.
	ReadCached ReadFreshness = "Cached"
	// ReadLive reads from the API server each time.
	ReadLive ReadFreshness = "Live"
)

// PolicyRead is a kind that the facts of a policy may read.
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

	// Cached (the default) watches the kind and reads facts from a cache, unless a
	// fact requests a live read. Live watches nothing and reads from the API server
	// each time: use it for numerous objects that are read rarely, such as everything
	// in a namespace that is being deleted.
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
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('_test.rego')",message="spec.modules[].name must not end in _test.rego: put tests into spec.tests"
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

// RegoPolicyStatus is the observed state of a policy.
type RegoPolicyStatus struct {
	// The metadata.generation that the rest of the status is based on. Set by the
	// policy reconciler, like everything here.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The active revision: a hash of the policy and of the libraries that it
	// imports. Decision records contain it. After an edit that does not compile, it
	// stays the last good revision; empty if there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ActiveRevision string `json:"activeRevision,omitempty"`

	// When Sallyport last confirmed this status. The leading replica renews it every
	// five minutes; if it is older, no replica maintains the status, and the rest of
	// it can be out of date.
	// +optional
	ReportedAt *metav1.Time `json:"reportedAt,omitempty"`

	// The state of the policy in detail: Ready (its current generation is active for every request that it matches, on every replica: it
	// compiles, its tests passed, its reads are granted, and it is registered), Compiled, TestsPassed, ReadsGranted, Active (its current or
	// its last good revision is active), Shipped (the policy of this release has been applied) and Edited (users have changed fields of
	// it).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The fields of spec that users have changed, added or removed, compared with
	// this release, such as spec.mode or spec.modules[supersede.rego].source: the
	// first 64. Empty if there are none, or if the policy is not shipped.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	EditedFields []string `json:"editedFields,omitempty"`

	// The result of the last run of the policy's tests.
	// +optional
	Tests *PolicyTestResult `json:"tests,omitempty"`

	// The existing objects that the policy would deny. Absent unless
	// spec.backgroundAudit is Enabled.
	// +optional
	Violations *PolicyViolations `json:"violations,omitempty"`

	// The progress of the running audit. Absent if no audit is running, or if it has
	// just started.
	// +optional
	Auditing *PolicyAudit `json:"auditing,omitempty"`
}

// PolicyAudit is the progress of a running audit.
type PolicyAudit struct {
	// When it began.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// The resource that it is evaluating, such as deployments.apps.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Resource string `json:"resource,omitempty"`

	// The number of objects evaluated so far, of all resources.
	// +required
	// +kubebuilder:validation:Minimum=0
	Objects int32 `json:"objects"`
}

// PolicyViolations is the result of evaluating a policy for existing objects.
type PolicyViolations struct {
	// When all objects were evaluated. Objects that have changed since then were
	// evaluated when they changed.
	// +required
	AuditedAt metav1.Time `json:"auditedAt"`

	// The value of the annotation sallyport.dev/audit-requested-at of the policy at
	// the time of the audit. If it differs from the present value, the requested
	// audit has not finished yet.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Requested string `json:"requested,omitempty"`

	// The revision of the policy that was evaluated.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision,omitempty"`

	// The number of objects evaluated.
	// +required
	// +kubebuilder:validation:Minimum=0
	Objects int32 `json:"objects"`

	// The number of objects that the policy would deny. Absent if not every object
	// was evaluated: then incomplete says why, and atLeast has the number found so
	// far.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count *int32 `json:"count,omitempty"`

	// The number of evaluated objects that the policy would deny, if count is absent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AtLeast int32 `json:"atLeast,omitempty"`

	// The number of objects that the policy could not evaluate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Undecided int32 `json:"undecided,omitempty"`

	// Why not all objects were evaluated, such as a kind that cannot be listed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Incomplete string `json:"incomplete,omitempty"`

	// The first objects that the policy would deny, by kind, namespace and name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	First []PolicyViolation `json:"first,omitempty"`
}

// PolicyViolation is an object that a policy would deny.
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

// RegoPolicy is a policy in Rego that decides about requests to the cluster, with
// its tests, its parameters, the requests that it matches and the kinds that it
// may read. An edit takes effect on every replica within a second. If an edit
// does not compile, the last good revision stays active, and the status says
// where the error is.
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

	// The policy: its Rego, the requests that it matches and how it is enforced.
	// +required
	Spec RegoPolicySpec `json:"spec"`

	// The observed state of the policy.
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
