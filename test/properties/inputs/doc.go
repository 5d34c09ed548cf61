// Package inputs holds no code but a test: the shipped policies are asked about thousands of requests and facts in which
// fields were deleted or have the wrong type, and must never allow what they could not read.
package inputs
