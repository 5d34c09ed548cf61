//go:build !race

package sweep

const (
	slow   = 1
	stride = 1
)
