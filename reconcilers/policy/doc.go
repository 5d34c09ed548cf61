// Package policy contains the leader's reconciler of RegoPolicies: it applies those that the release ships, reports
// the result in the status of each, and stores the active revisions, so that a replica that starts while a policy is
// broken decides like the others.
//
// The package does not compile policies. A Catalog reports their state, and a Checker checks what is about to be
// applied.
package policy
