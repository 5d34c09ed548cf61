package operation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/double/fake"
)

// Operations at random, some deleted, on a runtime that errs, loses replies and takes its time, by a process that crashes at
// random writes. Whatever happens: the runtime is told something only for who holds the machine while nothing is undone,
// nothing comes of an operation that is neither the holder nor being undone, and in the end all have ended.
func TestChaos(t *testing.T) {
	for seed := range depth.Of(uint64(1), 3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := &chaos{fixture: newFixture(t, v1alpha1.PowerStopped), dice: rand.New(rand.NewPCG(seed, 1))}
			c.world.SetTag(c.tag)
			for range depth.Of(20, 40) {
				c.round()
			}
			c.end()
		})
	}
}

type chaos struct {
	*fixture
	dice    *rand.Rand
	names   []string
	effects int
	log     []string
}

// tag tags a call with who holds the machine, and refuses one that must not be made.
func (c *chaos) tag(_ context.Context, verb runtime.Verb, _ runtime.Machine) string {
	status := c.vm().Status
	switch verb {
	case runtime.VerbObserve, runtime.VerbCancel:
		return ""
	}
	if status.ActiveOperation == nil || len(status.Undoing) > 0 {
		c.Errorf(depth.Effect+"the runtime is told to %s with the claim %+v\n%v", verb, status, c.log)
		return ""
	}
	return status.ActiveOperation.ID
}

func (c *chaos) chance(percent int) bool { return c.dice.IntN(100) < percent }

func (c *chaos) round() {
	c.Helper()
	kinds := []string{"Start", "Stop", "Stop force", "Restart", "Restart force", "Migrate", "Evict"}
	if c.chance(40) {
		name := fmt.Sprintf("op-%d", len(c.names))
		what := kinds[c.dice.IntN(len(kinds))]
		c.names, c.log = append(c.names, name), append(c.log, name+" "+what)
		c.ask(name, what)
	}
	if len(c.names) > 0 && c.chance(8) {
		if o := c.operation(c.names[c.dice.IntN(len(c.names))]); o != nil {
			c.log = append(c.log, "delete "+o.Name)
			c.delete(o)
		}
	}
	c.fault()
	if c.chance(25) {
		c.restart(&writes{crashAt: 1 + c.dice.IntN(6), after: c.chance(50)})
	}
	_, _ = c.reconcile()
	if c.writes.gone {
		c.log = append(c.log, "crash")
		c.restart(&writes{})
	}
	c.check()
	if c.chance(60) {
		c.world.Advance(c.uid)
		c.check()
	}
}

// fault has something go wrong, in ways that a runtime may.
func (c *chaos) fault() {
	c.world.SetGuest(c.uid, fake.Guest{Steps: 1, Ignores: c.chance(20), NoTools: c.chance(10)})
	c.world.SetCancels(c.uid, fake.Cancels{Steps: c.dice.IntN(2), Ignored: c.chance(30)})
	verbs := []runtime.Verb{runtime.VerbObserve, runtime.VerbPowerOn, runtime.VerbPowerOff, runtime.VerbCancel, runtime.VerbMigrate}
	at := fake.At{Verb: verbs[c.dice.IntN(len(verbs))]}
	switch n := c.dice.IntN(100); {
	case n < 10:
		c.world.Script(at, fake.Fail(runtime.NewUnavailable(nil, "away")))
	case n < 20:
		c.world.Script(at, fake.LoseReply())
	case n < 30:
		c.world.Script(fake.At{Verb: runtime.VerbPowerOn}, fake.ActLate(2))
	case n < 35:
		c.world.Script(fake.At{Verb: runtime.VerbPowerOn}, fake.FailTask("no memory"))
	case n < 40:
		c.world.GuestPowersOff(c.uid)
	}
}

// check looks whose doing the latest effects are. A guest may heed a request long after.
func (c *chaos) check() {
	c.Helper()
	all := c.world.Effects()
	status := c.vm().Status
	for _, e := range all[c.effects:] {
		switch e.Kind {
		case fake.PoweredOn, fake.PoweredOff, fake.Moved:
			finishedSince := slices.ContainsFunc(c.names, func(name string) bool { // within one Reconcile, with a task that takes no time
				o := c.operation(name)
				return o != nil && string(o.UID) == e.Tag && o.Finished()
			})
			if !e.ByGuest && !claim.Holds(&status, e.Tag) && !claim.Lost(&status, e.Tag) && !finishedSince {
				c.Errorf(depth.Effect+"%s came of %q, which neither holds the machine nor is undone: %+v\n%v", e.Kind, e.Tag, status, c.log)
			}
		}
	}
	c.effects = len(all)
}

// end has nothing more go wrong, and everything end.
func (c *chaos) end() {
	c.Helper()
	c.restart(&writes{})
	c.world.ClearScripts()
	c.world.SetGuest(c.uid, fake.Guest{Steps: 1})
	c.world.SetCancels(c.uid, fake.Cancels{})
	for range 12 {
		_, _ = c.reconcile()
		c.world.GuestActs(c.uid)
		c.world.Advance(c.uid)
		c.check()
	}
	for _, name := range c.names {
		if o := c.operation(name); o != nil && (!o.Finished() || len(o.Finalizers) > 0) {
			c.Errorf("%s has not ended: %+v %v\n%v", name, o.Status, o.Finalizers, c.log)
		}
	}
	if vm := c.vm(); vm.Busy() {
		c.Errorf("the claim is not empty: %+v\n%v", vm.Status, c.log)
	}
	c.quiet()
}
