package fair

import "sync"

// Buffer holds items until workers take them. Its names take turns. If it is full, the name that fills most of it loses its newest item.
// It is safe for concurrent use.
type Buffer[T any] struct {
	items int
	bytes int64
	ready chan struct{}

	mu      sync.Mutex
	waiting lines[*buffered[T]]
	of      map[string]int64 // bytes of each name
	size    int64            // bytes of all
}

type buffered[T any] struct {
	item  T
	bytes int64
}

// NewBuffer returns a buffer with limits for items and bytes.
func NewBuffer[T any](items int, bytes int64) *Buffer[T] {
	return &Buffer[T]{items: items, bytes: bytes, ready: make(chan struct{}, items), of: map[string]int64{}}
}

// Put adds an item, and returns the items that no longer fit, which can include the item itself.
func (b *Buffer[T]) Put(whose string, item T, bytes int64) (lost []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting.push(whose, &buffered[T]{item, bytes})
	b.of[whose] += bytes
	b.size += bytes
	for b.waiting.total > b.items || b.size > b.bytes {
		from := b.fullest(whose)
		line := b.waiting.of[from]
		last := line[len(line)-1]
		b.waiting.remove(from, last)
		b.taken(from, last)
		lost = append(lost, last.item)
	}
	select {
	case b.ready <- struct{}{}:
	default: // every item is announced already
	}
	return lost
}

// fullest returns the name that fills most of the buffer. The given name wins a tie.
func (b *Buffer[T]) fullest(name string) string {
	share := func(of string) float64 {
		return max(float64(len(b.waiting.of[of]))/float64(b.items), float64(b.of[of])/float64(b.bytes))
	}
	for other := range b.waiting.of {
		if share(other) > share(name) {
			name = other
		}
	}
	return name
}

func (b *Buffer[T]) taken(whose string, one *buffered[T]) {
	b.size -= one.bytes
	if b.of[whose] -= one.bytes; len(b.waiting.of[whose]) == 0 {
		delete(b.of, whose)
	}
}

// Ready returns a channel from which a worker receives before it calls Take.
func (b *Buffer[T]) Ready() <-chan struct{} { return b.ready }

// Take returns the next item, and false if there is none.
func (b *Buffer[T]) Take() (item T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting.total == 0 {
		return item, false
	}
	whose := b.waiting.turns[0]
	next := b.waiting.pop()
	b.taken(whose, next)
	return next.item, true
}

// Size returns how many bytes the items have together.
func (b *Buffer[T]) Size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size
}
