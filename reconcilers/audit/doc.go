// Package audit evaluates the policies with spec.backgroundAudit for the objects that exist: when a policy changes, on a schedule, and on
// request. It runs in the leader and denies nothing. status.violations of the RegoPolicy has the result, which the reconciler of
// RegoPolicies writes; so do reports, if they are enabled.
//
// An object is evaluated as a CREATE request, the only request that contains a whole object. Rules about updates and deletions need
// a change, so the audit does not evaluate them.
package audit
