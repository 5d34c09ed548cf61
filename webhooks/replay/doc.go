// Package replay puts recorded decisions to other policies than those that made them, and tells which would have been others.
//
// A decision is a pure function of its request, the facts that were read, the policies and the time. A record has all of it but
// the policies, so an edit of these can be tried on what people really asked for. What an edited policy asks beyond what was
// asked then is not in the record; then nothing is said, and never something guessed.
package replay
