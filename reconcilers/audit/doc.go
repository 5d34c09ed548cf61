// Package audit holds the objects that exist against the policies that want it (spec.backgroundAudit), whenever one changes and on
// a schedule, and from then on each object that changes. It is what the replica that leads does, and it refuses nothing: status.violations of the RegoPolicy has the result,
// which the reconciler of RegoPolicies writes, and reports have it if they are wanted.
//
// An object is judged as if it were created at this moment, because that is the one request that shows a policy a whole object.
// What a policy says of updates and deletions is about a change, and there is none here.
package audit
