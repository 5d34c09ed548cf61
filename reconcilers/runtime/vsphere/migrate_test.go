package vsphere_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/machine"
)

func TestMigrateToWhereItCannot(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("stuck")
	w.on(m)
	hosts := w.Hosts()
	refused := func(target runtime.Target, want string) {
		t.Helper()
		err := w.runtime.Migrate(t.Context(), m, target)
		if !runtime.IsInvalidState(err) || !strings.Contains(runtime.Message(err), want) {
			t.Errorf("got error %v, want InvalidState with %s", err, want)
		}
	}
	refused(runtime.Target{NodeName: "elsewhere"}, "no host elsewhere")
	w.SetHost(hosts[1], true, true)
	refused(runtime.Target{NodeName: hosts[1]}, "in maintenance mode")
	w.SetHost(hosts[2], false, false)
	refused(runtime.Target{NodeName: hosts[2]}, "not connected")
	refused(runtime.Target{}, "no other host")
	w.SetHost(hosts[2], true, false)
	w.Must(w.runtime.Migrate(t.Context(), m, runtime.Target{}))
	if seen := w.observe(m); seen.NodeName != hosts[2] {
		t.Errorf("the machine is on %s", seen.NodeName)
	}
}

// prioritized keeps with which priority machines are moved.
type prioritized struct {
	soap.RoundTripper
	seen *[]types.VirtualMachineMovePriority
}

// RoundTrip sends the request.
func (p prioritized) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	if move, ok := req.(*methods.RelocateVM_TaskBody); ok {
		*p.seen = append(*p.seen, move.Req.Priority)
	}
	return p.RoundTripper.RoundTrip(ctx, req, res)
}

// A forced move has a high priority, so that it converges with a busy guest.
func TestForcedMove(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("busy")
	w.on(m)
	var seen []types.VirtualMachineMovePriority
	config := w.config()
	config.Wrap = func(next soap.RoundTripper) soap.RoundTripper { return prioritized{next, &seen} }
	rt := disk.New(w.connect(config))
	for _, target := range []runtime.Target{{}, {Force: true}} {
		w.Must(rt.Migrate(t.Context(), m, target))
		w.observe(m)
	}
	want := []types.VirtualMachineMovePriority{types.VirtualMachineMovePriorityDefaultPriority, types.VirtualMachineMovePriorityHighPriority}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("priorities (-want +got):\n%s", diff)
	}
}

// Where a move goes that somebody else began is not known, also if the last of ours went where it is wanted.
func TestMoveByOthers(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("taken")
	hosts := w.Hosts()
	w.SetExtraConfig(w.path(m), map[string]string{machine.MoveKey: "2020-01-02T03:04:05Z 1@17 " + hosts[1]})
	w.observe(m)
	release := w.Hold(w.path(m), runtime.TaskRelocate)
	w.relocate(m, hosts[1])
	for _, target := range []runtime.Target{{NodeName: hosts[1]}, {Leave: hosts[0]}} {
		if err := w.runtime.Migrate(t.Context(), m, target); !runtime.IsInvalidState(err) {
			t.Errorf("got error %v, want InvalidState", err)
		}
	}
	release()
	if seen := w.observe(m); seen.NodeName != hosts[1] {
		t.Errorf("the machine is on %s", seen.NodeName)
	}
	w.Must(w.runtime.Migrate(t.Context(), m, runtime.Target{NodeName: hosts[1]}))
}

// relocate begins to move the machine as an administrator does.
func (w *world) relocate(m runtime.Machine, host string) {
	w.Helper()
	ctx := w.Context()
	address, err := soap.ParseURL(w.URL())
	w.Must(err)
	c, err := vim25.NewClient(ctx, soap.NewClient(address, true))
	w.Must(err)
	manager := session.NewManager(c)
	w.Must(manager.Login(ctx, w.User()))
	vm, err := object.NewSearchIndex(c).FindByInventoryPath(ctx, w.path(m))
	w.Must(err)
	to, err := object.NewSearchIndex(c).FindByInventoryPath(ctx, "/DC0/host/DC0_C0/"+host)
	w.Must(err)
	ref := to.Reference()
	_, err = vm.(*object.VirtualMachine).Relocate(ctx, types.VirtualMachineRelocateSpec{Host: &ref},
		types.VirtualMachineMovePriorityDefaultPriority)
	w.Must(err)
	w.Must(manager.Logout(ctx))
}
