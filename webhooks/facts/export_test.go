package facts

import "time"

// Hasten has the store ask sooner why a cache does not sync, and try again sooner. It is for before the first Watch.
func (s *Store) Hasten() {
	s.pace = pace{
		patience: 100 * time.Millisecond, first: 50 * time.Millisecond, longest: 200 * time.Millisecond,
		grace: time.Hour, doubt: 100 * time.Millisecond, stale: 100 * time.Millisecond, recheck: time.Hour,
	}
}

// Lapse has the time pass that what nobody wants any more is kept.
func (s *Store) Lapse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.grace = 0
	for gvk, k := range s.kinds {
		s.removeUnwanted(gvk, k)
	}
	s.pace.grace = time.Hour
}

// Recheck has the store ask that often for the rights to read live. It is for before the first Watch.
func (s *Store) Recheck(every time.Duration) { s.pace.recheck = every }

// Ways tells to how many kinds there is a way that is only read live.
func (s *Store) Ways() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.routes)
}
