package vsphere_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
	"sallyport.dev/sallyport/test/support/double/conformance"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/race"
)

// effects gives the requests by which a verb does what it does.
var effects = map[runtime.Verb][]string{
	runtime.VerbObserve:  {"RetrievePropertiesEx"},
	runtime.VerbEnsure:   {"ReconfigVM_Task", "CloneVM_Task"},
	runtime.VerbPowerOn:  {"PowerOnVM_Task"},
	runtime.VerbPowerOff: {"PowerOffVM_Task", "ShutdownGuest"},
	runtime.VerbCancel:   {"CancelTask"},
	runtime.VerbDelete:   {"ReconfigVM_Task", "Destroy_Task"},
	runtime.VerbMigrate:  {"RelocateVM_Task"},

	runtime.VerbEnsureDisk: {"CreateDisk_Task", "ExtendDisk_Task"},
	runtime.VerbDeleteDisk: {"DeleteVStorageObject_Task"},
	runtime.VerbAttach:     {"AttachDisk_Task"},
	runtime.VerbDetach:     {"DetachDisk_Task"},
}

// adopted runs the suite with machines that are adopted, prepared as it says, and cloned with such that are cloned. Only these have disks by
// themselves.
func adopted(t *testing.T, prepare func(w *world, path string)) {
	conform(t, false, false, func(w *world, name string) runtime.Machine {
		m := w.machine(name)
		prepare(w, w.path(m))
		return m
	})
}

func cloned(t *testing.T, disks bool, prepare func(w *world, path string)) {
	conform(t, true, disks, func(w *world, name string) runtime.Machine {
		m := w.cloned(name)
		prepare(w, string(cloneOf(m).Template.InventoryPath))
		return m
	})
}

// sharing is how many parts of the suite have a vCenter in common, which takes a while to start. They have machines of their own, and
// the more there are the longer is a disk looked for.
const sharing = 8

// conform runs the suite on vCenters.
func conform(suite *testing.T, makes, disks bool, newMachine func(w *world, name string) runtime.Machine) {
	var v *vcsim.VCenter
	parts := 0
	var newDisk func(*testing.T, string) runtime.Disk
	if disks {
		newDisk = func(_ *testing.T, name string) runtime.Disk { return diskOf(name) }
	}
	conformance.Run(suite, func(t *testing.T) conformance.Harness {
		if parts%sharing == 0 {
			v = start(suite)
		}
		parts++
		w := worldOf(t, v)
		part := fmt.Sprintf("-%d", parts)
		return conformance.Harness{
			Runtime:   w.runtime,
			Makes:     makes,
			Machine:   func(_ *testing.T, name string) runtime.Machine { return newMachine(w, name+part) },
			Disk:      newDisk,
			Reconnect: func(*testing.T) runtime.Runtime { return disk.New(w.connect(w.config())) },
			Instances: func(_ *testing.T, m runtime.Machine) (n int) {
				for _, path := range w.Machines() {
					if w.State(path).ExtraConfig[machine.OwnerKey] == string(m.UID) {
						n++
					}
				}
				return n
			},
			IgnoreShutdown: func(_ *testing.T, m runtime.Machine) { w.IgnoreShutdown(w.path(m)) },
			HeedShutdown:   func(_ *testing.T, m runtime.Machine) { w.HeedShutdown(w.path(m)) },
			SetGuest: func(_ *testing.T, m runtime.Machine, says runtime.Guest) {
				w.SetGuest(w.path(m), vcsim.Guest{
					Hostname: says.Hostname, Address: says.Addresses[0], Adapters: map[int32][]string{4000: says.Addresses},
				})
			},
			Ask: func(_ *testing.T, m runtime.Machine, q v1alpha1.PendingQuestion) {
				w.Ask(w.path(m), q.Text, q.Choices...)
			},
			RemoveTools: func(_ *testing.T, m runtime.Machine) { w.RemoveTools(w.path(m)) },
			Pause:       func(_ *testing.T, m runtime.Machine) { w.SetPower(w.path(m), v1alpha1.PowerPaused) },
			Spoil: func(_ *testing.T, m runtime.Machine) func() {
				w.SetTemplate(w.path(m), true)
				return func() { w.SetTemplate(w.path(m), false) }
			},
			Hold: func(_ *testing.T, m runtime.Machine, kind runtime.TaskKind) func() {
				if kind == runtime.TaskCreate {
					return w.Hold(string(cloneOf(m).Template.InventoryPath), kind)
				}
				return w.Hold(w.path(m), kind)
			},
			BeginForeign: func(_ *testing.T, m runtime.Machine, kind runtime.TaskKind) {
				w.Begin(w.path(m), kind, &types.TaskReasonUser{UserName: `LAB\somebody`})
			},
			OtherNode: func(_ *testing.T, m runtime.Machine) string { return w.OtherHost(w.path(m)) },
			Foreign: func(*testing.T) (runtime.Machine, func() error) {
				m := newMachine(w, "foreign"+part)
				if cloneOf(m) != nil {
					w.ensure(m)
				}
				w.SetExtraConfig(w.path(m), map[string]string{machine.OwnerKey: "somebody-else"})
				w.SetPower(w.path(m), v1alpha1.PowerRunning)
				want := w.State(w.path(m))
				return m, func() error {
					if diff := cmp.Diff(want, w.State(w.path(m))); diff != "" {
						return fmt.Errorf("(-before +after):\n%s", diff)
					}
					return nil
				}
			},
			LoseReply: func(_ *testing.T, _ runtime.Machine, verb runtime.Verb) { w.faults.LoseReply(effects[verb]...) },
			Stall: func(*testing.T, runtime.Machine, runtime.Verb) <-chan struct{} {
				reached := make(chan struct{})
				w.faults.Instead(func(ctx context.Context) error {
					close(reached)
					<-ctx.Done()
					return ctx.Err()
				})
				return reached
			},
		}
	})
}

func TestConformance(t *testing.T) {
	race.Skip(t)
	adopted(t, func(*world, string) {})
}

func TestConformanceOfClones(t *testing.T) {
	race.Skip(t)
	cloned(t, true, func(*world, string) {})
}

// Real tasks take time; what is quick can hide what is missing.
func TestConformanceOfSlowTasks(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	adopted(t, slow)
}

func TestConformanceOfSlowClones(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	cloned(t, false, slow) // disks have a part that holds what is in flight
}

func slow(w *world, path string) { w.SetStep(path, 20*time.Millisecond) }

// A vCenter need not honour a request to cancel a task.
func TestConformanceOfIgnoredCancels(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	adopted(t, func(w *world, path string) { w.IgnoreCancels(path) })
}
