package v1alpha1

// PolicyOverride says who may have a request pass a policy in spite of its
// denial.
//
// +kubebuilder:validation:Enum=Users;Everybody;Nobody
type PolicyOverride string

const (
	// OverrideUsers lets those pass who hold the verb override, service accounts
	// excepted: what a person is allowed once with a reason, automation would be
	// allowed for ever.
	OverrideUsers PolicyOverride = "Users"
	// OverrideEverybody lets service accounts pass, too, if they hold the verb.
	OverrideEverybody PolicyOverride = "Everybody"
	// OverrideNobody lets nobody pass.
	OverrideNobody PolicyOverride = "Nobody"
)

// AnnotationOverride on an object lets requests of one user pass one policy that refuses them, for a while and with a reason, if the
// user may override that policy: "<policy>; uid=<UID of the object, nothing at its creation>; by=<name of the user>;
// until=<time, at most an hour ahead>; <reason>".
const AnnotationOverride = "sallyport.dev/override"

// AnnotationAudit on a RegoPolicy has the objects that exist held against it once more, whenever it has another value: the time at which
// that is asked for, as a rule. status.violations.requested is the value that was last done. Who may change the policy may write it.
const AnnotationAudit = "sallyport.dev/audit-requested-at"
