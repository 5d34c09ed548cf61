// Package explain tells of a request why each policy did or did not object to it: whether it is asked, in which mode, what it
// learned from its facts, and of every rule what it said or which expression kept it from applying.
//
// The verdicts are the gate's own, of one decision on the same answers, and not made a second time.
package explain
