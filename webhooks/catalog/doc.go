// Package catalog builds the set of active policies from RegoPolicy objects, and selects those that match a request.
//
// # Broken objects
//
// An object is broken if it does not compile, if its spec.match or spec.namespaceModes is invalid, or if what it reads cannot be read.
// Then its last good revision is active: the latest one that this process has used or that is stored, of the object with the same
// UID; a policy that is deleted and created again starts without one. Rego, parameters, reads, timeout and spec.match are those of
// the revision, because its rules were written for it.
//
// The object determines the enforcement: spec.mode, spec.namespaceModes, spec.onError and spec.override. So mode Audit in a broken
// policy takes effect at once, as in any other edit. If its spec.namespaceModes is invalid, those of the revision apply.
//
// Without a good revision there is nothing to evaluate: requests that the object's spec.match selects follow its spec.onError,
// in its spec.mode. Requests for RegoPolicies are excepted, so that the object can be repaired. An invalid selector of spec.match
// then selects everything; with invalid spec.namespaceModes the strictest mode applies everywhere.
//
// An object whose reads have not synced yet is not broken. Until they have, its last revision is active. Without one, a new
// policy is left out, as if it were created a moment later; one that was in force before, if only by its onError, follows its
// onError.
//
// # Libraries
//
// A policy is compiled with the library modules that it reaches, and keeps them. Errors of a library concern only the policies
// that import it. If two libraries define the same names, the older one is used, and the younger one is left out as a whole.
// Policies cannot conflict: each is compiled by itself, so that a copy can be tried out beside the original.
// out beside it.
package catalog
