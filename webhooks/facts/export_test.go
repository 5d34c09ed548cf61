package facts

import "time"

// Hasten has the store try again sooner. It is for before the first Watch.
func (s *Store) Hasten() {
	s.pace = pace{first: 50 * time.Millisecond, longest: 200 * time.Millisecond, grace: time.Hour, doubt: 100 * time.Millisecond, recheck: time.Hour}
}

// Lapse has the time pass that what nobody wants any more is kept.
func (s *Store) Lapse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kinds {
		if !k.unwanted.IsZero() {
			k.unwanted = time.Now().Add(-s.pace.grace)
			k.rouse()
		}
	}
}

// Recheck has the store ask that often for the rights to read. It is for before the first Watch.
func (s *Store) Recheck(every time.Duration) { s.pace.recheck = every }

// Live tells how many kinds are only read live.
func (s *Store) Live() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of := range s.kinds {
		if of.live {
			n++
		}
	}
	return n
}
