// Package replay evaluates recorded decisions with other policies, and reports which would be different.
//
// A decision is a pure function of its request, the facts that were read, the policies and the time. A record has all of these but
// the policies, so an edited policy can be tried on real requests. If an edited policy reads what was not recorded, the result is
// unknown, and never guessed.
package replay
