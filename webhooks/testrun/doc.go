// Package testrun finds out, before a RegoPolicy is stored, whether it compiles with the others, whether its tests pass, and which
// policies it would break.
//
// Compiling untrusted policies, and even more running their tests, can take any time and memory, and Go cannot stop an evaluation
// that does not check for cancellation. So a policy is compiled and tested in a child process: the program itself with a hidden
// command, which sets limits by the operating system before it reads the policy, and is killed when its time is up. An exceeded
// limit is a finding about the policy. If a child cannot be started, or its output is invalid, the result is an error.
package testrun
