// Package catalog turns RegoPolicy objects into the set of policies that decide, and finds those that a request meets.
//
// # What decides where an object is broken
//
// An object is broken if it does not compile, if its spec.match or spec.namespaceModes is invalid, or if it reads what cannot be read.
// Its last good revision decides then: the youngest one that this process has used or that is stored, of the object with the same UID;
// a policy that is deleted and made again begins anew. Rego, parameters, reads, timeout and spec.match are those of that revision,
// because its rules were written for it.
//
// How it is enforced the object says: spec.mode, spec.namespaceModes, spec.onError and spec.override. So whoever writes mode Audit into
// a broken policy gets relief at once, as from any other edit. If spec.namespaceModes is invalid, the revision says that, too.
//
// If there is no good revision, nothing can be evaluated: requests that the object's spec.match selects follow its spec.onError,
// in its spec.mode, except requests for RegoPolicies, so that it can always be repaired. An invalid selector of spec.match then selects
// everything; with invalid spec.namespaceModes the strictest mode applies everywhere.
//
// An object whose reads are only not synced yet is not broken. Until they are its last revision decides. If there is none, a
// new policy is left out, as if it were written a moment later; one that was in force before, if only by its onError, still
// follows that.
//
// # Libraries
//
// A policy is compiled with those modules of libraries that it reaches, and keeps them. What is wrong with a library concerns
// nobody but the policies that import it. Of two libraries that define the same names the older one counts, and the younger
// one is left out as a whole. Policies cannot be in conflict: each is compiled for itself, so that a copy of one can be tried
// out beside it.
package catalog
