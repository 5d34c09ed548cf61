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
// the policy's onError. It knows no Kubernetes kind.
//
// Files are named by what they are about:
//
//	contract_*  what a policy may say: the rules it has, the shape of what they say, and what is refused in its text
//	compile_*   from its source to rules that can be asked; how each rule is instrumented, so that no denial vanishes
//	evaluate_*  a decision: facts, rules, denials and patches, and the errors that keep it from being made
//	fast_*      what only makes decisions fast, behind one interface: the projection of the input, the cache of decisions by it,
//	            facts by templates, constants. [Plain] leaves all of it out
//	testrun_*   a policy's own tests, and what they got and wanted
//	explain_*   the trace of an evaluation: where a rule stopped, and why
//	value_*     JSON documents, which are put into terms only as far as they are read
//
// Package builtins, below it, has what policies may call.
package engine
