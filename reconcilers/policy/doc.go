// Package policy is what the replica that leads does for RegoPolicies: it applies those that the release ships, shows in the
// status of each what became of it, and stores the revisions that decide, so that a replica that starts while a policy is
// broken decides as the others do.
//
// What a policy compiles to is not known here. A Catalog tells, and a Checker tries what is about to be applied.
package policy
