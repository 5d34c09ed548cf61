//go:build race

package replay

// The race detector makes a run some ten times slower.
var people, fewest = everybody[:1], 2000
