// Package explain explains for a request why each policy denied or allowed it: whether it matches, in which mode, the values of its
// facts, and for every rule its result or the expression that kept it from applying.
//
// The results are those of one decision of the gate on the same answers; nothing is decided a second time.
package explain
