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

// Active policies stay in memory: [engine.MostWeight] limits each of them, and MostWeight all together. The time of a compilation is
// limited here, but not its memory, and it cannot be cancelled. A policy has passed a child process with both limits before, or at
// least the estimates of [engine.Compile].

// MostWeight limits the sum of all [engine.Policy.Weight], in bytes.
const MostWeight = 192 << 20

// patience limits a compilation. It is long, so that a busy machine does not break a policy.
const patience = 10 * time.Second

// Weight returns the estimated memory of the policy, 0 if it is broken.
func (p *Policy) Weight() int64 {
	if p.Policy == nil {
		return 0
	}
	return p.Policy.Weight()
}

// CheckWeight returns an error if a policy and the others together weigh more than most.
func CheckWeight(name string, weight, others, most int64) error {
	if weight+others <= most {
		return nil
	}
	return fmt.Errorf("policy %s needs about %s of memory and the others about %s, but the limit for all policies is %s: "+
		"delete unused policies, or make their modules, imported libraries or parameters smaller",
		name, engine.Mebibytes(weight), engine.Mebibytes(others), engine.Mebibytes(most))
}

// byAge returns the indexes of objects, the oldest first. Objects of the same age keep their order, which is by name.
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

// errOverrun means that a compilation takes too long.
var errOverrun = errors.New("overrun")

// late has the compilations of this process that took too long, by their input. They cannot be cancelled, so they continue: the same input
// is not compiled a second time, and the first later call uses the result. On a slow machine a policy is therefore late, not broken.
var late sync.Map

// keepLate is the time after which an unused late result is dropped.
const keepLate = 10 * time.Minute

// leftBehind counts the compilations that took too long and still run.
var leftBehind atomic.Int64

// LeftBehind returns the number of compilations that took too long and still run.
func LeftBehind() int64 { return leftBehind.Load() }

// attempt is a compilation. The result is set when done is closed.
type attempt[T any] struct {
	done   chan struct{}
	result T
}

// await runs work and waits for its result, at most for patience. If the same work is late already, it does not wait.
func await[T any](c *Catalog, what any, work func() T) (result T, inTime bool) {
	begun := &attempt[T]{done: make(chan struct{})}
	if known, is := late.Load(what); is {
		return known.(*attempt[T]).poll(c, what)
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
		time.AfterFunc(keepLate, func() { late.CompareAndDelete(what, begun) })
	}()
	return begun.poll(c, what)
}

// poll returns the result of a late attempt if it has ended. Otherwise Late of the catalog is called when it ends.
func (a *attempt[T]) poll(c *Catalog, what any) (result T, ended bool) {
	select {
	case <-a.done:
		late.CompareAndDelete(what, a)
		return a.result, true
	default:
	}
	if c.Late != nil {
		go func() {
			<-a.done
			c.Late()
		}()
	}
	return result, false
}

func (c *Catalog) patience() time.Duration { return cmp.Or(c.Patience, patience) }

// compiled is the result of a compilation.
type compiled struct {
	policy *engine.Policy
	err    error
}

// within compiles a policy or library, and fails if that takes too long.
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

// parsing reports whether a late attempt to parse the module still runs: a compilation would begin with the same.
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

// sketchWithin is sketch with a time limit. If it is late, the outline is nil, as for a module that does not parse, and must not be cached.
func (c *Catalog) sketchWithin(m engine.Module) (outline *engine.Outline, inTime bool) {
	return await(c, m, func() *engine.Outline { return sketch(m) })
}
