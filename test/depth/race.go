//go:build race

package depth

// Raced tells whether the race detector is there.
const Raced = true
