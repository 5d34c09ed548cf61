// Package builtins has the builtins that policies may call, and their limits.
//
// OPA checks for cancellation between calls of builtins, and does not limit memory. Most builtins take time and memory in proportion to their
// operands, which are at most a review. Three things are limited, because an oversight in a policy and a large request are enough for them:
//
//   - the work of one call, if it grows like a product, as of the length of a pattern and that of a text: a call that would take seconds fails;
//   - what the calls and comprehensions of one evaluation make, together: a product of two long lists fills the memory before the deadline. A
//     call whose result can be out of proportion with its operands is charged before it runs, all others when their result is there;
//   - numbers that are out of proportion with their text, such as 1e1000000, where a text becomes one.
//
// The error ends the evaluation, so that the policy could not decide. The limits are per process: a compiler of OPA cannot have its own
// implementations of builtins. A policy that is written to exceed them can do so: its deadline, and the memory of the container, limit it.
package builtins
