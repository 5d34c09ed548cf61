//go:build race

package trial

// A child of the race detector needs more memory than a rehearsal may have, for what it notes.
const notes = true
