//go:build race

package race

// Enabled reports whether the race detector is there.
const Enabled = true
