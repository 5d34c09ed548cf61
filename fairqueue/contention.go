package fairqueue

import (
	"slices"
	"time"
)

const (
	// contentions is how often within ContentionPeriod a write only undoes what another client did before it counts as contention: two clients
	// that undo one another go on for ever.
	contentions = 3
	// ContentionPeriod is the time in which writes are counted.
	ContentionPeriod = time.Minute
)

// Contention counts the writes that only undo what another client did to an object. It is not safe for concurrent use.
type Contention struct{ at []time.Time }

// Undone counts a write.
func (c *Contention) Undone(now time.Time) { c.at = append(c.at, now) }

// Lasts reports whether there were many of them lately.
func (c *Contention) Lasts(now time.Time) bool {
	c.at = slices.DeleteFunc(c.at, func(at time.Time) bool { return now.Sub(at) >= ContentionPeriod })
	return len(c.at) >= contentions
}
