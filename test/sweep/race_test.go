//go:build race

package sweep

// The race detector makes a run some ten times slower: calls get more time, and only some of the points are looked at,
// those of each operation and each fault at others.
const (
	slow   = 8
	stride = 7
)
