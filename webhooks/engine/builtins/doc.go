// Package builtins is what policies may call, and how much of it.
//
// OPA looks for a cancel between calls of builtins, and has no limit of memory. Most builtins take a time, and make something, in
// proportion to what they are given, which is at most a review. Those that can do more are told in advance what they would do:
//
//   - their work, where it grows like a product, as in the length of a pattern and that of a text: a call that would take seconds is
//     an error;
//   - what they make. All that the calls of one evaluation make together is bounded, because a text that is put together with itself
//     is as large as the memory after a few calls, and so is a list of what many small calls make;
//   - how many parts a value has that repeats others, which takes no memory but, to whoever compares it, time: see [Measured];
//   - numbers that are out of proportion with their text, such as 1e1000000. No builtin makes or takes one.
//
// The error ends the evaluation, so that the policy could not decide. What is here belongs to the process: OPA has no builtins of
// one compiler that take the place of its own.
package builtins
