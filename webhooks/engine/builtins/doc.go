// Package builtins has the builtins that policies may call, and their limits.
//
// OPA checks for cancellation between calls of builtins, and does not limit memory. Most builtins take time and memory in
// proportion to their operands, which are at most a review. For the others, the cost of a call is computed in advance:
//
//   - its work, if it grows like a product, as of the length of a pattern and that of a text: a call that would take seconds fails;
//   - its result. The results of all calls of one evaluation together are limited, because a text that is concatenated with itself
//     exhausts the memory after a few calls, and so does a list of the results of many small calls;
//   - the number of parts of a value that repeats others, which takes no memory but time when it is compared: see [Measured];
//   - numbers that are out of proportion with their text, such as 1e1000000. No builtin returns or accepts one.
//
// The error ends the evaluation, so that the policy could not decide. The limits are per process: a compiler of OPA cannot have its
// own implementations of builtins.
package builtins
