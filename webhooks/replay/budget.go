package replay

import "sync"

// budget limits the bytes of lines in memory.
type budget struct {
	most int

	mu       sync.Mutex
	released sync.Cond
	used     int
}

// newBudget returns a budget of the longest line that an input may have.
func newBudget(inputs []Input) *budget {
	b := &budget{}
	for i := range inputs {
		b.most = max(b.most, inputs[i].longest())
	}
	b.released.L = &b.mu
	return b
}

// acquire waits until so many bytes are free, or no others are in use.
func (b *budget) acquire(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.used > 0 && b.used+bytes > b.most {
		b.released.Wait()
	}
	b.used += bytes
}

func (b *budget) release(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	b.released.Broadcast()
}
