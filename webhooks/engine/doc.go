// Package engine compiles policies written in Rego and evaluates them for requests.
//
// A policy is one Rego package that defines, for an admission request:
//
//	facts.<name>   queries for what it needs beyond the request (evaluated first)
//	valid_input    whether request, facts and parameters have the shape that the rules expect
//	deny, warn     why the request is denied, or what its author should know
//	patch          what to change in the object (mutating endpoint only)
//	outcome        anything that a reconciler that evaluates the same policy needs
//
// The engine reads the facts from a [Reader], evaluates, and returns a [Decision]. It never turns its own failure into a result: if
// it cannot decide, it returns an [*Error] with a [Cause], and the caller applies the policy's onError. It knows no Kubernetes
// kind.
//
// File names begin with what they are about:
//
//	contract_*  what a policy may contain: its rules, the shapes of their values, and what is rejected in its text
//	compile_*   from its source to rules that can be evaluated; how rules are instrumented, so that no denial vanishes
//	evaluate_*  a decision: facts, rules, denials and patches, and the errors that prevent it
//	reads_*     what of its input a policy reads
//	testrun_*   a policy's own tests, and their actual and expected values
//	explain_*   the trace of an evaluation: where a rule stopped, and why
//	value_*     JSON documents, of which only the parts that are read are converted to terms
//
// Below it, package plan evaluates queries fast, and package builtins has the builtins that policies may call.
package engine
