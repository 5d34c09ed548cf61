package conformance

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// variant is one way in which a world can be.
type variant struct {
	steps   int
	cancels fake.Cancels
	guest   fake.Guest
	adopt   bool
	// hibernates says that machines are moved by hibernation.
	hibernates bool
}

// adoptable is a machine that Ensure adopts.
func adoptable(w *fake.World, name string) runtime.Machine {
	m := PodMachine(name)
	m.Spec = &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, InventoryPath: "/dc/vm/" + name,
	}}}
	w.AddInstance(fake.Instance{Place: fake.Place(m)})
	return m
}

// podDisk is a disk that EnsureDisk makes.
func podDisk(name string) runtime.Disk {
	return runtime.Disk{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: name},
		UID:            types.UID("uid-of-disk-" + name),
		Spec:           &v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi")},
	}
}

// harness is the harness of a fake.
func harness(v variant) func(t *testing.T) Harness {
	return func(*testing.T) Harness {
		w := fake.New()
		for _, kind := range []runtime.TaskKind{
			runtime.TaskCreate, runtime.TaskPowerOn, runtime.TaskPowerOff, runtime.TaskRelocate, runtime.TaskDelete,
			runtime.TaskReconfigure, runtime.TaskOther,
		} {
			w.SetSteps(kind, v.steps)
		}
		connect := func(name string) runtime.Runtime {
			if v.hibernates {
				return w.Hibernating(name)
			}
			return w.Client(name)
		}
		h := OfWorld(w, connect)
		h.Makes = !v.adopt
		h.Machine = func(_ *testing.T, name string) runtime.Machine {
			m := PodMachine(name)
			if v.adopt {
				m = adoptable(w, name)
			}
			w.SetCancels(m.UID, v.cancels)
			w.SetGuest(m.UID, v.guest)
			return m
		}
		h.Disk = func(_ *testing.T, name string) runtime.Disk { return podDisk(name) }
		h.Source = func(*testing.T) runtime.DiskSource {
			return runtime.DiskSource{Image: "uid-of-image", Snapshot: "s", Claim: types.NamespacedName{Name: "c"}}
		}
		h.Hold = func(_ *testing.T, m runtime.Machine, kind runtime.TaskKind) func() {
			// Only what takes a step at all can be held.
			w.SetSteps(kind, max(1, v.steps))
			return w.Hold(m.UID, kind)
		}
		h.BeginForeign = func(_ *testing.T, m runtime.Machine, kind runtime.TaskKind) { w.Begin(m.UID, kind, "somebody") }
		h.Registry = &Registry{
			Digest: func(_ *testing.T, m runtime.Machine) string {
				for _, s := range w.Snapshots(m.UID) {
					if s.Migration == m.Migration.ID {
						return s.Digest
					}
				}
				return ""
			},
			Replace: func(_ *testing.T, m runtime.Machine) {
				w.SetSnapshots(m.UID, fake.Snapshot{Migration: m.Migration.ID, Digest: "sha256:another"})
			},
			Lose: func(_ *testing.T, m runtime.Machine) { w.SetSnapshots(m.UID) },
		}
		return h
	}
}

var variants = map[string]variant{
	"tasks take a step":                 {steps: 1, guest: fake.Guest{Steps: 1}},
	"tasks end in the call":             {},
	"tasks take three steps":            {steps: 3, guest: fake.Guest{Steps: 4}},
	"a cancel is ignored":               {steps: 2, cancels: fake.Cancels{Ignored: true}},
	"a cancel is honoured late":         {steps: 4, cancels: fake.Cancels{Steps: 2}},
	"a cancel comes too late":           {steps: 1, cancels: fake.Cancels{Steps: 3}},
	"machines are adopted and not made": {steps: 1, adopt: true},

	"moves are hibernations":                      {steps: 1, guest: fake.Guest{Steps: 1}, hibernates: true},
	"moves are hibernations that end in the call": {hibernates: true},
	"moves are hibernations that take a while":    {steps: 3, hibernates: true, cancels: fake.Cancels{Steps: 2}},
}

func TestFake(t *testing.T) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) { Run(t, harness(v)) })
	}
}

// A client keeps the contract of its runtime.
func TestClientOfFake(t *testing.T) {
	Run(t, func(t *testing.T) Harness {
		h := harness(variants["tasks take a step"])(t)
		h.Runtime = runtime.NewClient(h.Runtime, runtime.NewMetrics(prometheus.NewRegistry(), time.Now).Count("fake"))
		return h
	})
}

// A harness with no hooks gets what can be tested without, and a runtime that is no Migrator is not asked to move.
func TestBareHarness(t *testing.T) {
	Run(t, func(t *testing.T) Harness {
		h := harness(variants["tasks take a step"])(t)
		return Harness{Runtime: struct{ runtime.Runtime }{h.Runtime}, Machine: h.Machine, Advance: h.Advance}
	})
}
