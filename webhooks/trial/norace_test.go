//go:build !race

package trial

const notes = false
