package vsphere_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/step"
)

// watched is a watch, with how often it has told of each machine.
type watched struct {
	*world
	step.T
	ended chan error

	mu   sync.Mutex
	told map[string]int
}

func (w *world) watch(t *testing.T) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &watched{world: w, T: step.T{T: t}, ended: make(chan error, 1), told: map[string]int{}}
	go func() {
		h.ended <- w.runtime.Watch(ctx, func(id string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.told[id]++
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-h.ended; err == nil {
			t.Error("the watch ends without saying why")
		}
	})
	h.Eventually("all machines are told of", func() bool { return h.times("") > 0 })
	return h
}

func (h *watched) times(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told[id]
}

// tells waits until a machine is told of because of something.
func (h *watched) tells(what, id string, does func()) {
	h.Helper()
	before := h.times(id)
	does()
	h.Eventually(what+" is told", func() bool { return h.times(id) > before })
}

// Whatever an Observe shows is told when it changes, of that machine only.
func TestWatch(t *testing.T) {
	w := newWorld(t)
	m, other := w.adopted("web"), w.adopted("other")
	quiet := w.State(w.path(w.machine("quiet"))).InstanceUUID
	h := w.watch(t)
	h.tells("a power-on by somebody", m.InstanceID, func() { w.SetPower(w.path(m), v1alpha1.PowerRunning) })
	h.tells("a task", m.InstanceID, func() { w.Begin(w.path(m), runtime.TaskRelocate, &types.TaskReasonUser{UserName: "drs"}) })
	h.tells("a lost connection", m.InstanceID, func() { w.SetConnection(w.path(m), types.VirtualMachineConnectionStateDisconnected) })
	h.tells("what a guest says", m.InstanceID, func() { w.SetGuest(w.path(m), vcsim.Guest{Address: "10.0.0.7"}) })
	h.tells("that tools stop", m.InstanceID, func() { w.SetGuest(w.path(m), vcsim.Guest{Address: "10.0.0.7", ToolsNotRunning: true}) })
	h.tells("a question", m.InstanceID, func() { w.Ask(w.path(m), "Moved or copied?") })
	h.tells("an answer", m.InstanceID, func() { w.Answer(w.path(m)) })
	h.tells("a mark as a template", m.InstanceID, func() { w.SetTemplate(w.path(m), true) })
	h.tells("another machine", other.InstanceID, func() { w.SetPower(w.path(other), v1alpha1.PowerRunning) })
	fresh := w.machine("fresh")
	h.Eventually("one that is new is told", func() bool { return h.times(w.State(w.path(fresh)).InstanceUUID) > 0 })
	if n := h.times(quiet); n != 0 {
		t.Errorf("a machine of which nothing changed was told of %d times", n)
	}
	if n := h.times(""); n != 1 {
		t.Errorf("all machines were told of %d times", n)
	}
}

// Machines that come at the same time, while others have tasks, are all told of.
func TestWatchWhileManyCome(t *testing.T) {
	w := newWorld(t)
	h := w.watch(t)
	var coming sync.WaitGroup
	for i := range 16 {
		coming.Go(func() {
			path, err := w.AddMachine(fmt.Sprintf("machine-%d", i))
			if err != nil {
				t.Error(err)
				return
			}
			w.Begin(path, runtime.TaskPowerOn, &types.TaskReasonUser{UserName: "drs"})
		})
	}
	coming.Wait()
	for i := range 16 {
		id := w.State(fmt.Sprintf("/DC0/vm/machine-%d", i)).InstanceUUID
		h.Eventually("it is told", func() bool { return h.times(id) > 0 })
	}
}

// A clone gets its instance UUID after it is made. A watch that has seen it before that tells of its later changes, too.
func TestWatchOfClones(t *testing.T) {
	w := newWorld(t)
	h := w.watch(t)
	for i := range 8 {
		m := w.ensure(w.cloned(fmt.Sprintf("web-%d", i)))
		h.tells("what the guest of a clone says", m.InstanceID, func() { w.SetGuest(w.path(m), vcsim.Guest{Address: "10.0.0.7"}) })
	}
}

// A watch ends with its session: nobody can tell what was missed.
func TestWatchEndsWithItsSession(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("web")
	h := w.watch(t)
	w.ExpireSessions()
	w.SetPower(w.path(m), v1alpha1.PowerRunning) // the simulator answers late that there is no session
	h.Eventually("the watch ends", func() bool { return len(h.ended) == 1 })
}

var _ runtime.Watcher = (*disk.Runtime)(nil)
