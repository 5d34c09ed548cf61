// Package plan evaluates queries of Rego as programs.
//
// OPA's interpreter (topdown) walks the syntax of a policy for each request, and converts all input to terms before. OPA can also compile a
// query with all rules that it needs to a plan (package ir): functions of simple statements on numbered variables, as for its WebAssembly
// target. Compile makes a tree of Go closures of a plan; Run executes it on documents that are read where they lie, such as JSON text.
//
// A program gives the result of topdown or none at all. It has no messages for errors of policies, no `with`, no tracing and no limits of its
// own: when something is not as a program expects it, Run fails, and the caller evaluates the query with topdown, which says what is wrong. So
// there is one definition of what a policy means, and this package has only the frequent part of it, fast.
package plan
