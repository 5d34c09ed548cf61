package v1alpha1

// PolicyMode says what a denial of a policy does.
//
// +kubebuilder:validation:Enum=Enforce;Warn;Audit
type PolicyMode string

const (
	// ModeEnforce denies the request.
	ModeEnforce PolicyMode = "Enforce"
	// ModeWarn admits the request and warns the user.
	ModeWarn PolicyMode = "Warn"
	// ModeAudit admits the request and only records the denial.
	ModeAudit PolicyMode = "Audit"
)

// PolicyErrorAction says what happens to a request that a policy could not
// evaluate.
//
// +kubebuilder:validation:Enum=Deny;Allow
type PolicyErrorAction string

const (
	// OnErrorDeny denies the request.
	OnErrorDeny PolicyErrorAction = "Deny"
	// OnErrorAllow admits the request.
	OnErrorAllow PolicyErrorAction = "Allow"
)

// PolicyFailureAction says what happens to a request while no replica answers.
//
// +kubebuilder:validation:Enum=Fail;Ignore
type PolicyFailureAction string

const (
	// FailureFail denies the request.
	FailureFail PolicyFailureAction = "Fail"
	// FailureIgnore admits the request.
	FailureIgnore PolicyFailureAction = "Ignore"
)
