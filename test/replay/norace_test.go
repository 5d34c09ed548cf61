//go:build !race

package replay

// people ask for everything, and leave that many decisions.
var people, fewest = everybody, 10_000
