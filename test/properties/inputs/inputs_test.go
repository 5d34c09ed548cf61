package inputs_test

import (
	"cmp"
	"flag"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// These tests break what policies read, one to three fields at a time, and hold the answer against an oracle: a model in
// Go of what the policies are for, which knows of every field that a decision rests on whether it can be read.
//
// An allow is legitimate only if the broken input deserves it when taken at its word:
//
//   - Every field that the decision rests on is there and of its type, or its absence has a meaning of its own.
//   - The tables in the shipped parameters allow what the input then says.
//
// Replacements never are valid values of a field that has a list of values, objects are never taken out of the list of
// operations, and the list is never replaced by []. That leaves a handful of changes by which a request that was denied
// may come to be allowed, because nothing tells its input from one in which the field was never set. They are listed in
// openers, and a request that passes without one of them is a hole, whatever the oracle says.
//
// What is not readable must be refused by every policy that reads it, or, with onError Allow, pass with a warning that names
// the policy and the cause. What is readable must get the oracle's verdict,
// reason for reason, so that the policies cannot pass by refusing everything.
//
// Fields that choose which policies are asked (operation, kind, resource, subResource) stay as they are: without them it
// is another request.

var (
	count = flag.Int("inputs.count", 0, "how many broken requests to validate, 0 for 2000, and 500 with -short; half as many with onError Allow, a fifth as many to fill in")
	seed  = flag.Uint64("inputs.seed", 1, "what the mutations are drawn from")
)

// trials returns how many broken requests a test validates.
func trials() int {
	if testing.Short() {
		return cmp.Or(*count, 250)
	}
	return cmp.Or(*count, 2000)
}

type object = map[string]any

const (
	group         = "sallyport.dev"
	apiVersion    = group + "/v1alpha1"
	machineKind   = "VirtualMachine"
	operationKind = "VirtualMachineOperation"
	namespace     = "team-a"
	machineName   = "web-1"

	supersede     = "operations-supersede"
	applicability = "operations-applicability"
	copies        = "operations-copies"
	migration     = "placement-migration"
)

// decidedAt is when every decision is made.
var decidedAt = time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC)

// drawing chooses bases, as many of each class as of any other.
type drawing struct {
	classes []string
	bases   map[string][]*base
}

func drawingOf(all []*base) *drawing {
	d := &drawing{bases: map[string][]*base{}}
	for _, b := range all {
		d.bases[b.class] = append(d.bases[b.class], b)
	}
	d.classes = slices.Sorted(maps.Keys(d.bases))
	return d
}

// number gives the i-th of all broken inputs; each has a sequence of its own, whatever else runs.
func (d *drawing) number(i int) (*base, []change) {
	random := rand.New(rand.NewPCG(*seed, uint64(i)))
	bases := d.bases[d.classes[random.IntN(len(d.classes))]]
	b := bases[random.IntN(len(bases))]
	return b, drawChanges(random, b.sites)
}

// inParallel runs f for 0 to n-1 and stops early once the test has failed often enough to be understood.
func inParallel(t *testing.T, n int, f func(i int) (failure string)) {
	t.Helper()
	var next, failures atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failures.Load() < 5; i = int(next.Add(1)) - 1 {
				if failure := f(i); failure != "" {
					failures.Add(1)
					t.Errorf("number %d of -inputs.seed=%d: %s", i, *seed, failure)
				}
			}
		})
	}
	all.Wait()
}

// tally counts what became of the trials.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) add(keys ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	for _, key := range keys {
		c.of[key]++
	}
}

// atLeast fails the test if something happened too rarely for the test to say anything about it.
func (c *tally) atLeast(t *testing.T, n int, least map[string]float64) {
	t.Helper()
	if t.Failed() { // it stopped early, and there is something else to look at
		return
	}
	for key, share := range least {
		if n >= 2000 && float64(c.of[key]) < share*float64(n) {
			t.Errorf("%q happened %d times of %d, which is not enough to be a test", key, c.of[key], n)
		}
	}
}

func (c *tally) log(t *testing.T, n int) {
	t.Helper()
	t.Logf("of %d:", n)
	for _, key := range slices.Sorted(maps.Keys(c.of)) {
		t.Logf("%6d %s", c.of[key], key)
	}
}

// Names of what is counted.
const (
	countRejected   = "rejected as no review"
	countAllowed    = "allowed"
	countDenied     = "denied"
	countErred      = "not readable and refused"
	countPassed     = "not readable and passed with a warning"
	countUnreadable = "not readable"
	countTurned     = "readable, denied before and allowed now"
	countTightened  = "readable, allowed before and denied now"
)

func (c *tally) trial(tr *trial) {
	if tr.rejected != nil {
		c.add(countRejected)
		return
	}
	keys := []string{countDenied}
	switch {
	case tr.response.Allowed && tr.unreadable():
		keys[0] = countPassed
	case tr.response.Allowed:
		keys[0] = countAllowed
	case tr.unreadable():
		keys[0] = countErred
	default:
		for _, want := range tr.expected {
			if want.reason != "" {
				keys = append(keys, want.reason)
			}
		}
	}
	if tr.unreadable() {
		keys = append(keys, countUnreadable)
	}
	if tr.turned() {
		keys = append(keys, countTurned)
		for _, opener := range tr.openers() {
			keys = append(keys, countTurned+" by "+opener)
		}
	}
	if tr.base.class == allowed && !tr.unreadable() && !tr.response.Allowed {
		keys = append(keys, countTightened)
	}
	c.add(keys...)
}

// Every policy that judges operations must be in the oracle, or the tests would say nothing about it.
func TestOracleKnowsThePolicies(t *testing.T) {
	review, err := decode(requestOf("Stop"))
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, s := range compile(t, asShipped).Select(t.Context(), review.Request, reader{world: &world{}}) {
		if s.Validates() && s.Name() != "windows" { // denies nothing without parameters
			asked = append(asked, s.Name())
		}
	}
	if known := []string{applicability, copies, supersede, migration}; !slices.Equal(asked, known) {
		t.Errorf("operations are judged by %v, and the oracle knows %v: teach it", asked, known)
	}
}

// Unbroken inputs get what their class says, and every reason is met by every operation that it can be met by.
func TestCorpus(t *testing.T) {
	o, set := oracleOf(t), compile(t, asShipped)
	forms := map[string]map[string]bool{}
	all := corpus(o)
	for _, b := range all {
		if forms[b.class] == nil {
			forms[b.class] = map[string]bool{}
		}
		forms[b.class][b.form] = true
		tr := o.try(t.Context(), set, b, nil)
		if f := tr.check(false); f != nil || tr.rejected != nil || tr.unreadable() || tr.response.Allowed != (b.class == allowed) {
			t.Errorf("%v, class %s, %+v\n%s", tr.rejected, b.class, f, tr)
		}
	}
	for _, class := range []string{allowed, busyOperation, busyNamesake, busyDeletion, missing, terminating, badPolicy, observed, badPhase} {
		if len(forms[class]) != len(o.SupersededBy) {
			t.Errorf("%s: only the operations %v", class, slices.Sorted(maps.Keys(forms[class])))
		}
	}
	if len(forms[busyHolder]) < len(o.SupersededBy)-1 { // a forced Stop takes the place of everything that is not forced
		t.Errorf("%s: only the operations %v", busyHolder, slices.Sorted(maps.Keys(forms[busyHolder])))
	}
	t.Logf("%d bases", len(all))
}

func TestBrokenInputsAreNeverAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		n          int
		change     func(*v1alpha1.RegoPolicy)
		errorsPass bool
		least      map[string]float64
	}{
		"onError Deny":  {trials(), asShipped, false, map[string]float64{countErred: 0.3, countPassed: 0}},
		"onError Allow": {trials() / 2, onErrorAllow, true, map[string]float64{countErred: 0.02, countPassed: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			o, set := oracleOf(t), compile(t, tc.change)
			d := drawingOf(corpus(o))
			var c tally
			inParallel(t, tc.n, func(i int) string {
				b, changes := d.number(i)
				tr := o.try(t.Context(), set, b, changes)
				if f := tr.check(tc.errorsPass); f != nil {
					return f.text + "\n" + tr.String()
				}
				c.trial(tr)
				return ""
			})
			c.log(t, tc.n)
			c.atLeast(t, tc.n, tc.least)
			c.atLeast(t, tc.n, map[string]float64{
				countRejected: 0.01, countAllowed: 0.02, countDenied: 0.15, countUnreadable: 0.3, countTurned: 0.001, countTightened: 0.0005,
				busy: 0.05, missing: 0.02, terminating: 0.01, badPolicy: 0.01, badPhase: 0.01,
			})
			if !tc.errorsPass && c.of[countPassed] > 0 {
				t.Errorf("%d passed that cannot be read", c.of[countPassed])
			}
		})
	}
}

// The same inputs find the holes of policies whose valid_input is true: the test can fail.
func TestHolesAreFound(t *testing.T) {
	o, set := oracleOf(t), compile(t, unguarded)
	d := drawingOf(corpus(o))
	n := min(trials(), 2000)
	var c tally
	inParallel(t, n, func(i int) string {
		b, changes := d.number(i)
		tr := o.try(t.Context(), set, b, changes)
		if f := tr.check(false); f != nil && f.hole {
			c.add("holes")
			if tr.response.Allowed {
				c.add("allowed")
			}
		}
		return ""
	})
	c.log(t, n)
	c.atLeast(t, n, map[string]float64{"holes": 0.02, "allowed": 0.01})
}
