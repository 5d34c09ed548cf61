package facts

import "time"

// Hasten has the store ask sooner why a cache does not sync, and try again sooner. It is for before the first Watch.
func (s *Store) Hasten() {
	s.pace = pace{patience: 100 * time.Millisecond, first: 50 * time.Millisecond, longest: 200 * time.Millisecond}
}
