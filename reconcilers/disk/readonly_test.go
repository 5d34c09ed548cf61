package disk

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// readOnly is a process that sends nothing to the runtime.
func (w *world) readOnly() *process {
	p := w.process("read-only")
	rt := runtime.NewClient(w.machines.Client("read-only")).Halted(func(context.Context) error { return runtime.ErrReadOnly })
	p.disks.Runtimes = func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error) { return rt, nil }
	p.vms.vms.Runtimes = func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil }
	p.vms.vms.Halt = runtime.ReadOnly
	return p
}

// A read-only process creates, grows, attaches and deletes no disks, and the next one that is not does.
func TestReadOnlyDisks(t *testing.T) {
	w := newWorld(t.Context())
	only, usual := w.readOnly(), w.process("usual")
	looks := func(p *process) *v1alpha1.VirtualDisk {
		t.Helper()
		for range 5 {
			if err := p.look(p.vms, "web-1"); err != nil {
				t.Fatal(err)
			}
			if err := p.look(p.disks, "data"); err != nil {
				t.Fatal(err)
			}
			w.machines.AdvanceAll()
		}
		d := &v1alpha1.VirtualDisk{}
		if w.Get(w.ctx, key("data"), d) != nil {
			return nil
		}
		return d
	}
	reason := func(d *v1alpha1.VirtualDisk) string { return v1alpha1.ConditionReady.In(d.Status.Conditions).Reason }

	w.disk("data")
	w.machine("web-1", "data")
	if d := looks(only); reason(d) != "ReadOnly" || len(w.machines.Disks()) > 0 || len(w.machines.Instances()) > 0 {
		t.Errorf("read-only: %s, disks %v, machines %v", reason(d), w.machines.Disks(), w.machines.Instances())
	}
	d := looks(usual)
	if reason(d) != "DiskReady" || d.Status.AttachedTo == nil {
		t.Fatalf("after read-only: %+v", d.Status)
	}
	d.Spec.Size = resource.MustParse("2Gi")
	w.must(w.Update(w.ctx, d))
	effects := len(w.machines.Effects())
	if d = looks(only); reason(d) != "Resizing" || len(w.machines.Effects()) != effects {
		t.Errorf("read-only: %s, effects %v", reason(d), w.machines.Effects()[effects:])
	}
	if d = looks(usual); reason(d) != "DiskReady" {
		t.Errorf("after read-only: %+v", d.Status)
	}
}
