package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// underSwaps is what became of requests in windows of time. In every other window, from the second on, a policy is swapped.
type underSwaps struct {
	windows [][]time.Duration
}

const (
	callers    = 4
	windowLong = 250 * time.Millisecond // a pace, nothing is waited for
)

// swapUnderLoad has callers ask all the time, and a policy edited in every other window. No request may fail.
func (s *sallyport) swapUnderLoad(windows int) (*underSwaps, error) {
	u := &underSwaps{windows: make([][]time.Duration, windows)}
	var window atomic.Int64
	var done atomic.Bool
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			r := requests[rowTwo]
			for i := 0; !done.Load(); i++ {
				begun, start := window.Load(), time.Now()
				err := r.overTLS(s.client, s.address, r.bodies[(caller*machines/callers+i)%machines])
				took := time.Since(start)
				mu.Lock()
				u.windows[begun] = append(u.windows[begun], took)
				if failed == nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	var err error
	for i := range windows {
		window.Store(int64(i))
		if i%2 == 1 && err == nil {
			err = s.order("swap")
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

// String tells of the 99th percentile of windows with a swap and of those without, and of the one as a multiple of the other: each
// time of two windows that followed each other, because what else the machine does is no business of swaps.
func (u *underSwaps) String() string {
	var requests int
	var still, swapping, ratios []float64
	for i, w := range u.windows {
		requests += len(w)
		if i%2 == 1 {
			before, during := p99(u.windows[i-1]), p99(w)
			still, swapping, ratios = append(still, before), append(swapping, during), append(ratios, during/before)
		}
	}
	milliseconds := func(all []float64) float64 { return middle(all) * 1000 }
	return fmt.Sprintf("policies swapped %d times under a load of %d requests: none failed; p99 %.1f ms, and %.1f ms without a swap; "+
		"of two windows in succession %.2f times, in the middle half of the pairs %.2f to %.2f",
		len(ratios), requests, milliseconds(swapping), milliseconds(still), middle(ratios), ratios[len(ratios)/4], ratios[len(ratios)*3/4])
}

// p99 is the duration in seconds that one in a hundred takes longer than.
func p99(all []time.Duration) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)*99/100].Seconds()
}

// middle sorts and gives the median.
func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
