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
// they decide. Compilation is bounded in time: it can neither be cancelled nor given
// a limit of memory in this process, where what comes has passed a child process that can, or at least the estimates of [engine.Compile].

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

// late are the compilations of this process that took too long, by what is compiled. Each goes on, since nothing can end it: nobody begins it
// a second time beside it, and what it gives in the end is used by the first who asks. A slow machine is late with a policy, no more.
var late sync.Map

// keepLate is how long a late result is kept for somebody who asks.
const keepLate = 10 * time.Minute

// leftBehind counts the compilations that nobody waits for any more.
var leftBehind atomic.Int64

// LeftBehind is how many compilations took too long and still run.
func LeftBehind() int64 { return leftBehind.Load() }

// attempt is a compilation, and who is to be told when it ends.
type attempt[T any] struct {
	done   chan struct{}
	result T

	mu     sync.Mutex
	wanted []func()
}

// await waits for work, and not longer than a compilation may take. For what is late already it does not wait at all.
func await[T any](c *Catalog, what any, work func() T) (result T, inTime bool) {
	begun := &attempt[T]{done: make(chan struct{})}
	if known, is := late.Load(what); is {
		return known.(*attempt[T]).take(c, what)
	}
	go func() {
		defer close(begun.done)
		begun.result = work()
	}()
	timer := time.NewTimer(c.patience())
	defer timer.Stop()
	select {
	case <-begun.done:
		return begun.result, true
	case <-timer.C:
	}
	leftBehind.Add(1)
	late.Store(what, begun)
	go func() {
		<-begun.done
		leftBehind.Add(-1)
		begun.tell()
		time.AfterFunc(keepLate, func() { late.CompareAndDelete(what, begun) })
	}()
	return begun.take(c, what)
}

// take gives the result of a late attempt, if it has ended; else the catalog is told when it does.
func (a *attempt[T]) take(c *Catalog, what any) (result T, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.done:
		late.CompareAndDelete(what, a)
		return a.result, true
	default:
	}
	if c.Late != nil {
		a.wanted = append(a.wanted, c.Late)
	}
	return result, false
}

func (a *attempt[T]) tell() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, tell := range a.wanted {
		tell()
	}
	a.wanted = nil
}

func (c *Catalog) patience() time.Duration { return cmp.Or(c.Patience, patience) }

// compiled is what compiling gives.
type compiled struct {
	policy *engine.Policy
	err    error
}

// within compiles, but not for longer than a compilation may take.
func (c *Catalog) within(name string, key [sha256.Size]byte, modules []engine.Module, compile func() (*engine.Policy, error)) (*engine.Policy, error) {
	if !slices.ContainsFunc(modules, parsing) {
		result, inTime := await(c, key, func() (r compiled) {
			r.policy, r.err = compile()
			return r
		})
		if inTime {
			return result.policy, result.err
		}
	}
	return nil, fmt.Errorf("%s cannot be used: %w: compiling it did not finish within %v; it goes on, and the result is used when there is one; "+
		"if there is none, make its rules and comprehensions shorter and less nested", name, errOverrun, c.patience())
}

// parsing tells whether a module is late that a compilation would begin with.
func parsing(m engine.Module) bool {
	known, is := late.Load(m)
	if !is {
		return false
	}
	select {
	case <-known.(*attempt[*engine.Outline]).done:
		return false
	default:
		return true
	}
}

// sketchWithin is sketch, but not for longer than a compilation may take. Late gives nil, as what does not parse, and is not remembered.
func (c *Catalog) sketchWithin(m engine.Module) (outline *engine.Outline, inTime bool) {
	return await(c, m, func() *engine.Outline { return sketch(m) })
}
