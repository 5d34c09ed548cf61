// Package engine compiles policies written in Rego and decides requests with them.
//
// A policy is one Rego package that answers four questions about an admission request:
//
//	facts.<name>   what must be known beyond the request (asked first)
//	valid_input    whether request, facts and parameters have the shape the rules were written for
//	deny, warn     why the request is refused, or what its author should know
//	patch          what to change in the object (mutating endpoint only)
//	outcome        anything a reconciler that asks the same policy needs to know
//
// The engine asks a [Reader] for the facts, evaluates, and returns a [Decision]. It never turns its own
// failure into a verdict: whatever keeps it from deciding is an [*Error] with a [Cause], and the caller applies
// the policy's onError. It knows no Kubernetes kind and imports nothing of Kubernetes.
package engine
