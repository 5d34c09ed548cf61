// Package audit evaluates the policies with spec.backgroundAudit for the objects that exist: when a policy changes, on a schedule, and on
// request. It runs in the leader and denies nothing. status.violations of the RegoPolicy has the result, which the reconciler of
// RegoPolicies writes; so do reports, if they are enabled.
//
// An object is judged as if it were created at this moment, because that is the one request that shows a policy a whole object.
// What a policy says of updates and deletions is about a change, and there is none here.
package audit
