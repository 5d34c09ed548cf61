// Package catalog turns RegoPolicy objects into the set of policies that decide, and finds those that a request meets.
//
// # What decides where an object is broken
//
// An object is broken if it does not compile, if its spec.match cannot be used, or if it reads what cannot be read. Its last
// good revision decides then: the youngest one that this process has used or that is stored, of the object with the same UID;
// a policy that is deleted and made again begins anew. Rego, parameters, reads and timeout are those of that revision.
//
// How it is enforced is the looser of the two: of spec.mode and spec.onError the one that lets more pass, and a request is
// judged only if it meets both objects' spec.match. So whoever writes mode Audit, or an exclusion, into a broken policy gets
// relief at once, as they would from any other edit; what is stricter or wider waits until it compiles, because the old rules
// were not written for it. What cannot be read in the broken object's own spec.match is left out of this.
//
// If there is no good revision, nothing can be asked: requests that the object's spec.match selects follow its spec.onError,
// in its spec.mode, except requests for RegoPolicies, so that it can always be repaired. Requirements of a namespaceSelector
// that cannot be read are left out, so that it selects more rather than less; without resources it selects nothing.
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
