// Package registration has the API server ask policies about kinds that are not Sallyport's own. It is what the replica that leads
// does.
//
// For its own kinds the chart registers webhooks. It also makes a mutating and a validating configuration without entries, and
// those are kept here in step with what the policies match that decide: one entry per policy, which the API server asks about that
// policy alone. What the chart's webhooks cover already is not registered again.
//
// # When an entry changes
//
// An entry appears or changes only when every live replica has reported that it decides by the same policies as this one: else the
// policy would be enforced by chance. Until then the API server asks by the earlier entry, and the replicas evaluate what the policy
// matches now. That failures are ignored is written immediately, and an entry whose policy is gone is removed immediately, whatever
// replicas report: a replica that is asked about a policy that it does not know admits.
//
// A policy that is broken and has no good revision is not registered: a slip in a new policy must not stand in the way of a
// whole cluster. One that was registered under its name before stays so, and its requests follow its onError.
//
// # What is never registered
//
// Nothing is asked about kube-system, nor about the namespace of Sallyport, so that it can be started whatever its policies say.
// What a cluster needs in order to come back, or what nobody can be asked about, is refused, and the policy's condition says so:
// see never. Terminating objects, the API server's own writes, and updates of nothing but a status or finalizers pass unasked.
//
// # Nothing is remembered
//
// All that is done follows from the policies, the reports and the configurations as they are, so that the next leader goes on
// where this one stopped. Two that believe for a moment that they lead hold each other up by the resourceVersion that a write
// names, and the one that really leads puts right what the other has written. The configurations are the chart's: when they are
// gone, nothing makes them anew.
package registration
