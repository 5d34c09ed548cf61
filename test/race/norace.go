//go:build !race

package race

// Enabled tells whether the race detector is there.
const Enabled = false
