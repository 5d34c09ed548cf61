package catalog

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// What policies need is bounded for each by [engine.MostWeight], and here for all of them together: they stay in memory for as long as
// they decide. Compilation is bounded in time: it can neither be cancelled nor given a limit of memory in this process.

// MostWeight is what all policies may need together, in bytes, as [engine.Policy.Weight] estimates it.
const MostWeight = 192 << 20

// patience is long, because a policy must not be broken by how busy a machine is.
const patience = 10 * time.Second

// Weight is what the policy needs; 0 if it is broken.
func (p *Policy) Weight() int64 {
	if p.Policy == nil {
		return 0
	}
	return p.Policy.Weight()
}

// CheckWeight tells whether there is room for a policy beside others, if all may need so much.
func CheckWeight(name string, weight, others, most int64) error {
	if weight+others <= most {
		return nil
	}
	return fmt.Errorf("policy %s needs about %s of memory and the others about %s, but the limit for all policies is %s: "+
		"delete unused policies, or make their modules, imported libraries or parameters smaller",
		name, engine.Mebibytes(weight), engine.Mebibytes(others), engine.Mebibytes(most))
}

// byAge gives the positions of objects, the oldest first; by name where they are of one age, as they come.
func byAge(objects []v1alpha1.RegoPolicy) []int {
	order := make([]int, len(objects))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(objects[a].CreationTimestamp.Compare(objects[b].CreationTimestamp.Time), cmp.Compare(a, b))
	})
	return order
}

// errOverrun is what is wrong with what takes too long to compile.
var errOverrun = errors.New("overrun")

// overrun is what took too long to compile in this process, by what it is. It is not tried again: what was left behind of it may still
// run.
var overrun sync.Map

// leftBehind counts the compilations of this process that nobody waits for any more.
var leftBehind atomic.Int64

// LeftBehind is how many compilations took too long and still run.
func LeftBehind() int64 { return leftBehind.Load() }

// await waits for work, and not longer than a compilation may take.
func await[T any](limit time.Duration, work func() T) (result T, inTime bool) {
	done := make(chan T, 1)
	go func() { done <- work() }()
	timer := time.NewTimer(cmp.Or(limit, patience))
	defer timer.Stop()
	select {
	case result = <-done:
		return result, true
	case <-timer.C:
		leftBehind.Add(1)
		go func() {
			<-done
			leftBehind.Add(-1)
		}()
		return result, false
	}
}

// within compiles, but not for longer than a compilation may take, and not again what took longer before.
func (c *Catalog) within(name string, key [sha256.Size]byte, modules []engine.Module, compile func() (*engine.Policy, error)) (*engine.Policy, error) {
	_, known := overrun.Load(key)
	for _, m := range modules {
		_, sketched := overrun.Load(m)
		known = known || sketched
	}
	if !known {
		var policy *engine.Policy
		err, inTime := await(c.Patience, func() (err error) {
			policy, err = compile()
			return err
		})
		if inTime {
			return policy, err
		}
		overrun.Store(key, true)
	}
	return nil, fmt.Errorf("%s cannot be used: %w: compiling it did not finish within %v; "+
		"make its rules and comprehensions shorter and less nested", name, errOverrun, cmp.Or(c.Patience, patience))
}

// sketchWithin is sketch, but not for longer than a compilation may take. It gives nil then, too.
func (c *Catalog) sketchWithin(m engine.Module) *engine.Outline {
	if _, known := overrun.Load(m); known {
		return nil
	}
	outline, inTime := await(c.Patience, func() *engine.Outline { return sketch(m) })
	if !inTime {
		overrun.Store(m, true)
	}
	return outline
}
