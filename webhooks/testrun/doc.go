// Package testrun finds out what would become of a RegoPolicy before it is stored: whether it compiles among the others, whether
// its tests pass, and which policies would break.
//
// A policy is text from outside. Compiling it, and even more running its tests, can take any time and any memory, and Go has no
// means to end an evaluation that does not look for a cancel. So it is compiled and tested in a child process: the program itself, started
// with a hidden command, which takes its limits from the system before it reads the policy, and which is killed when its time
// is up. What breaks a limit is a finding about the policy. That a child could not be started, or said nothing that can be
// understood, is an error, and nothing is known then.
package testrun
