// Package registration registers webhooks for the kinds of other API groups that policies match. It runs in the leader.
//
// The chart registers webhooks for Sallyport's own kinds. It also creates a mutating and a validating configuration without entries,
// which this package keeps in step with the active policies: one entry per policy, at which the API server calls Sallyport for that
// policy alone. Resources that the chart's webhooks cover are not registered again.
//
// # When an entry changes
//
// An entry is added or changed only when every live replica has reported the same active policies as the leader: until then, the replica
// that receives a request would determine whether the policy is enforced. Meanwhile the API server uses the earlier entry, and the
// replicas evaluate the current spec.match. Two changes do not wait, because neither denies more requests: an entry starts to ignore
// failures, or is removed with its policy.
//
// A broken policy without a good revision is not registered, so that a mistake in a new policy cannot block a whole cluster. If a policy
// of that name was registered before, the entry stays, and its requests follow onError.
//
// # What is never registered
//
// Entries exclude kube-system and the namespace of Sallyport, so that Sallyport can start whatever its policies say. Resources that a
// cluster needs to recover, or for which the API server calls no webhook, are rejected with a condition of the policy: see never.
// Terminating objects, the API server's own writes, and updates of only the status or finalizers are excluded by matchConditions.
//
// # Other writers
//
// What another client adds to a namespaceSelector stays, as it only excludes namespaces. Other changes are undone, and deletions too, unless
// another client makes them each time: see share.
//
// # No state
//
// Each pass depends only on the policies, the reports and the configurations, so that the next leader continues where the last one
// stopped. If two replicas believe for a moment that they lead, the resourceVersion in their writes prevents lost updates, and the actual
// leader corrects the entries. The configurations belong to the chart: if they are deleted, this package does not create them.
package registration
