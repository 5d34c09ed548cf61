package chart

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/sim"
)

// swapped tells that the Stop holds the machine.
func swapped(s *state) bool {
	return s.vm.Status.ActiveOperation != nil && s.vm.Status.ActiveOperation.Name == "stop-1"
}

// points are where the leader is killed, in the order in which they come.
var points = []point{
	{name: "the claim is swapped", seen: func(s *state) bool { return swapped(s) && len(s.vm.Status.Undoing) > 0 }},
	{name: "the task to undo is noted", seen: func(s *state) bool {
		return len(s.vm.Status.Undoing) > 0 && s.vm.Status.Undoing[0].Task != ""
	}},
	{name: "Cancel arrived and was not done", verb: runtime.VerbCancel, moment: sim.Before},
	{name: "Cancel was done, its reply lost", verb: runtime.VerbCancel, moment: sim.After},
	{name: "start-1 has ended", seen: func(s *state) bool { return s.start.Finished() }},
	{name: "its entry is gone", seen: func(s *state) bool { return swapped(s) && len(s.vm.Status.Undoing) == 0 }},
	{name: "the baseline is written", seen: func(s *state) bool { return s.stop.Status.Baseline != nil }},
	{name: "SignalSent is Unknown", seen: func(s *state) bool { return signalSent(&s.stop) == metav1.ConditionUnknown }},
	{name: "PowerOff was done, its reply lost", verb: runtime.VerbPowerOff, moment: sim.After},
	{name: "SignalSent is True", seen: func(s *state) bool { return signalSent(&s.stop) == metav1.ConditionTrue }},
	{name: "stop-1 has ended", seen: func(s *state) bool { return s.stop.Finished() }},
}

// aKilledLeaderIsFollowed: wherever in a supersede the leader is killed, the other takes over and the end is the one that it would have been.
func aKilledLeaderIsFollowed(t *testing.T) {
	bothServe(t)
	want := untouched(t)
	var table []string
	for i, p := range points {
		passed := t.Run(strings.ReplaceAll(p.name, " ", "-"), func(t *testing.T) {
			r := newRound(t, fmt.Sprintf("round-%d", i+1), p, (*install.Manager).Kill)
			r.play(&want)
			table = append(table, fmt.Sprintf("%-36s killed %s, converged after %4.1f s, waited to send: %v",
				p.name, r.victim, time.Since(r.when).Seconds(), r.takingOver))
			r.checkWorld()
			checkApart(t, r.uid, r.victim)
		})
		if !passed {
			t.FailNow() // the others would wait as long
		}
	}
	t.Logf("the leader killed when\n%s", strings.Join(table, "\n"))
	if !slices.ContainsFunc(table, func(line string) bool { return strings.HasSuffix(line, "true") }) {
		t.Error("nobody ever waited before sending: the next test would not notice either")
	}
	checkNoOverlap(t)
	bothServe(t) // also after all that
}

// aLeaderThatEndsCleanlyHandsOverAtOnce: a leader that is asked to end hands over at once: it has nothing under way, and says so by releasing the lease.
func aLeaderThatEndsCleanlyHandsOverAtOnce(t *testing.T) {
	want := untouched(t)
	p := point{name: "Cancel arrived", verb: runtime.VerbCancel, moment: sim.Before} // and its caller is told to end
	r := newRound(t, "clean", p, (*install.Manager).Stop)
	r.play(&want)
	if r.takingOver {
		t.Error("the next leader waited before it sent anything")
	}
	next := worker(r.uid)
	if next == r.victim {
		t.Errorf("%s goes on after its end", next)
	}
	r.checkWorld()
	checkNoOverlap(t)
}

// untouched is how the round ends when nobody is killed.
func untouched(t *testing.T) ending {
	t.Helper()
	untouchedOnce.Do(func() {
		r := newRound(t, "untouched", point{}, nil)
		untouchedEnding = r.play(nil)
		r.checkWorld()
	})
	m, start, stop := untouchedEnding.Machine, untouchedEnding.Start, untouchedEnding.Stop
	if !m.Free || m.Phase != v1alpha1.VirtualMachineStopped || m.Power != v1alpha1.PowerStopped || m.Intent != "Stopped by stop-1" ||
		start.Phase != v1alpha1.OperationCompleted || start.SupersededBy != "stop-1" || stop.Phase != v1alpha1.OperationCompleted ||
		!slices.Equal(stop.Supersedes, []string{"start-1"}) || !hasPrefix(start.Conditions, "Completed=True Superseded") ||
		!hasPrefix(stop.Conditions, "Completed=True Succeeded") {
		t.Fatalf("without a kill it ended with\n%s", untouchedEnding)
	}
	return untouchedEnding
}

var (
	untouchedOnce   sync.Once
	untouchedEnding ending
)

func hasPrefix(texts []string, prefix string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text, prefix) })
}

// bothServe has the API server call both managers, the leader and the other.
func bothServe(t *testing.T) {
	t.Helper()
	if err := stack.pair.forgive(); err != nil {
		t.Fatal(err)
	}
	r := &round{T: t}
	r.until("both managers to serve admission", func() bool {
		stack.balancer.Reset()
		probe := &v1alpha1.VirtualMachineOperation{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe"},
			Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStart, VirtualMachineName: "nobody"},
		}
		_ = stack.client.Create(t.Context(), probe) // refused by whoever judges it
		counts := stack.pair.admissions(t.Context())
		return counts["a"] > 0 && counts["b"] > 0
	})
	for _, backend := range stack.pair.backends() {
		t.Logf("%s took %d connections", backend.Address, stack.balancer.Taken(backend.Address))
	}
	t.Logf("decisions at admission: %v, the leader is %q", stack.pair.admissions(t.Context()), stack.pair.leader(t.Context()))
}

// checkWorld checks what the world was told: the machine went on once and off once, and was not told to go off before the
// power-on was over.
func (r *round) checkWorld() {
	r.Helper()
	var on, off []fake.Effect
	for _, e := range stack.world.Effects() {
		switch {
		case e.Machine != r.uid:
		case e.Kind == fake.PoweredOn:
			on = append(on, e)
		case e.Kind == fake.PoweredOff:
			off = append(off, e)
		}
	}
	if len(on) != 1 || len(off) != 1 {
		r.Fatalf("the machine went on %d times and off %d times", len(on), len(off))
	}
	for _, c := range stack.world.Calls() {
		if c.Machine.UID == r.uid && c.Verb == runtime.VerbPowerOff && c.Seq < on[0].Seq {
			r.Errorf("it was told to go off while the power-on was in flight: %+v", c)
		}
	}
}

// sends gives the calls that were to change something, of one machine or of all.
func sends(machine types.UID) []sim.Call {
	return slices.DeleteFunc(stack.sim.Calls(), func(c sim.Call) bool {
		return c.Verb == runtime.VerbObserve || (machine != "" && c.Machine.UID != machine)
	})
}

// checkApart checks that whoever follows one that was killed sends nothing for a lease after its last call.
func checkApart(t *testing.T, machine types.UID, killed string) {
	t.Helper()
	var last, first *sim.Call
	for _, c := range sends(machine) {
		if c.Client == killed && first == nil {
			last = &c
		}
		if c.Client != killed && last != nil && first == nil {
			first = &c
		}
	}
	if last == nil || first == nil {
		return // the other had nothing left to send
	}
	gap := first.Began.Sub(last.Began)
	if gap < lease {
		t.Errorf("%s sent %s only %v after the %s of %s", first.Client, first.Verb, gap, last.Verb, last.Client)
	}
	t.Logf("%s sent %s %.1f s after the %s of %s", first.Client, first.Verb, gap.Seconds(), last.Verb, last.Client)
}

// checkNoOverlap checks that no two processes ever had a call under way at once, beside those that only look.
func checkNoOverlap(t *testing.T) {
	t.Helper()
	all := sends("")
	for i, c := range all {
		for _, other := range all[:i] {
			if other.Client != c.Client && other.Ended.After(c.Began) {
				t.Errorf("%s began %s while %s of %s was under way", c.Client, c.Verb, other.Verb, other.Client)
			}
		}
	}
	t.Logf("%d calls that change something, none of them beside one of the other process", len(all))
}
