package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// underSwaps is what became of requests while policies were swapped, and while they were not.
type underSwaps struct {
	requests, swaps int
	still, swapping []time.Duration
}

const (
	callers    = 4
	windowLong = 500 * time.Millisecond // a pace, nothing is waited for
)

// swapUnderLoad has callers ask all the time, and a policy edited in every other window. No request may fail.
func (s *sallyport) swapUnderLoad(windows int) (*underSwaps, error) {
	var swapping, done atomic.Bool
	var mu sync.Mutex
	var failed error
	u := &underSwaps{}
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			r := requests[rowTwo]
			for i := 0; !done.Load(); i++ {
				during, start := swapping.Load(), time.Now()
				err := r.overTLS(s.client, s.address, r.bodies[(caller*machines/callers+i)%machines])
				took := time.Since(start)
				mu.Lock()
				u.requests++
				if during {
					u.swapping = append(u.swapping, took)
				} else {
					u.still = append(u.still, took)
				}
				if failed == nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	var err error
	for i := range windows {
		swapping.Store(i%2 == 1)
		if i%2 == 1 && err == nil {
			err = s.order("swap")
			u.swaps++
		}
		time.Sleep(windowLong)
	}
	done.Store(true)
	all.Wait()
	if failed != nil {
		err = fmt.Errorf("a request failed while policies were swapped: %w", failed)
	}
	return u, err
}

// p99 is the duration that one in a hundred takes longer than.
func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}
