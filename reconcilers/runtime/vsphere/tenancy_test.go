package vsphere

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// tenant is a machine in a vCenter, and tenants that keep which place they were asked about.
type tenant struct {
	tenancy
	vm     *v1alpha1.VirtualMachine
	asked  []string
	answer error
}

func newTenant() *tenant {
	t := &tenant{}
	t.vm = &v1alpha1.VirtualMachine{Spec: v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{
		VSphere: &v1alpha1.VSphereRuntime{ServerRef: v1alpha1.VSphereServerReference{Name: "vc"}, InventoryPath: "/dc/vm/as-specified"},
	}}}
	t.vm.Name, t.vm.UID = "web", "machine"
	t.admit = func(_ context.Context, vm *v1alpha1.VirtualMachine) ([]v1alpha1.InventoryPath, error) {
		t.asked = append(t.asked, vm.Spec.Runtime.VSphere.InventoryPath)
		return nil, t.answer
	}
	return t
}

func at(path string, err error) placing {
	return func(context.Context, runtime.Machine) (string, error) { return path, err }
}

// calls makes every call, with what the tenants have to say of it.
func (t *tenant) calls(ctx context.Context, rt runtime.Runtime, place placing) map[runtime.Verb]error {
	c, m := runtime.NewClient(rt, t.of(t.vm, place)), runtime.MachineOf(t.vm)
	_, observed := c.Observe(ctx, m)
	_, ensured := c.Ensure(ctx, m)
	return map[runtime.Verb]error{
		runtime.VerbObserve: observed, runtime.VerbEnsure: ensured, runtime.VerbPowerOn: c.PowerOn(ctx, m),
		runtime.VerbPowerOff: c.PowerOff(ctx, m, runtime.Graceful), runtime.VerbCancel: c.Cancel(ctx, m, "task"),
		runtime.VerbDelete: c.Delete(ctx, m),
		runtime.VerbMigrate: runtime.Use(ctx, c, runtime.VerbMigrate, m, func(ctx context.Context, able runtime.Migrator) error {
			return able.Migrate(ctx, m, runtime.Target{})
		}),
	}
}

// Who may not have a machine where it is sees nothing of it and changes nothing, but can end what was begun, and let it go.
func TestTenancyRefuses(t *testing.T) {
	refusal := runtime.NewPermission(nil, "not there")
	for name, place := range map[string]struct {
		is    placing
		asked string
	}{
		"where it really is":                         {at("/dc/vm/elsewhere", nil), "/dc/vm/elsewhere"},
		"where it is to be, while it is nowhere yet": {at("", runtime.NewNotFound(nil, "nowhere")), "/dc/vm/as-specified"},
	} {
		tenant, w := newTenant(), fake.New()
		tenant.answer = refusal
		for verb, err := range tenant.calls(t.Context(), w.Client("a"), place.is) {
			ends := verb == runtime.VerbCancel || verb == runtime.VerbDelete
			if ends && err != nil || !ends && !errors.Is(err, refusal) {
				t.Errorf("%s: %s: got error %v", name, verb, err)
			}
		}
		for _, asked := range tenant.asked {
			if asked != place.asked {
				t.Errorf("%s: asked about %s", name, asked)
			}
		}
		if len(w.Calls()) != 2 {
			t.Errorf("%s: the runtime was called %d times", name, len(w.Calls()))
		}
	}
}

// A machine that is nowhere yet, or of which nobody knows where it is, is told nothing, even if it may be where its spec has it: when
// the call arrives it could be elsewhere. To look is allowed.
func TestTenancyFailsClosed(t *testing.T) {
	for name, where := range map[string]error{
		"nowhere": runtime.NewNotFound(nil, "nowhere"),
		"unknown": runtime.NewUnavailable(nil, "no answer"),
	} {
		w := fake.New()
		for verb, err := range newTenant().calls(t.Context(), w.Client("a"), at("", where)) {
			free := verb == runtime.VerbCancel || verb == runtime.VerbDelete || verb == runtime.VerbObserve
			if free && err != nil || !free && !errors.Is(err, where) {
				t.Errorf("%s: %s: got error %v", name, verb, err)
			}
		}
		if len(w.Calls()) != 3 {
			t.Errorf("%s: the runtime was called %d times", name, len(w.Calls()))
		}
	}
}

// A machine that is cloned is judged by the folder that it is in, and by its spec until it is there. Then it may be made.
func TestTenancyOfClones(t *testing.T) {
	for name, c := range map[string]struct {
		place placing
		known string
		asked v1alpha1.InventoryPath
		made  bool
	}{
		"before it is made":  {at("", runtime.NewNotFound(nil, "nowhere")), "", "/dc/vm/team", true},
		"where it is":        {at("/dc/vm/moved/ns-web", nil), "id", "/dc/vm/moved", true},
		"lost":               {at("", runtime.NewNotFound(nil, "nowhere")), "id", "/dc/vm/team", false},
		"nobody knows where": {at("", runtime.NewUnavailable(nil, "no answer")), "", "", false},
	} {
		tenant, w := newTenant(), fake.New()
		tenant.vm.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{Clone: &v1alpha1.VSphereClone{Folder: "/dc/vm/team"}}
		tenant.vm.Status.InstanceID = c.known
		var asked v1alpha1.InventoryPath
		tenant.admit = func(_ context.Context, vm *v1alpha1.VirtualMachine) ([]v1alpha1.InventoryPath, error) {
			asked = vm.Spec.Runtime.VSphere.Clone.Folder
			return nil, nil
		}
		tenant.calls(t.Context(), w.Client("a"), c.place)
		made := slices.ContainsFunc(w.Calls(), func(c fake.Call) bool { return c.Verb == runtime.VerbEnsure })
		if asked != c.asked || made != c.made {
			t.Errorf("%s: asked about %q, made: %v", name, asked, made)
		}
		if folder := tenant.vm.Spec.Runtime.VSphere.Clone.Folder; folder != "/dc/vm/team" {
			t.Errorf("%s: the spec has become %s", name, folder)
		}
	}
}

// Who may not have a disk on its datastore neither makes it nor attaches it, and can still let it go.
func TestTenancyOfDisks(t *testing.T) {
	refusal := runtime.NewPermission(nil, "not there")
	for name, c := range map[string]struct {
		tenants DiskTenants
		is      func(error) bool
	}{
		"refused":    {func(context.Context, *v1alpha1.VirtualDisk) error { return refusal }, func(err error) bool { return errors.Is(err, refusal) }},
		"not judged": {nil, runtime.IsPermission},
	} {
		w, d := fake.New(), runtime.Disk{
			NamespacedName: kubetypes.NamespacedName{Namespace: "ns", Name: "data"}, UID: "uid",
			Spec: &v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi")},
		}
		client := runtime.NewClient(w.Client("a"), tenancy{admitDisk: c.tenants}.ofDisks)
		for verb, call := range map[runtime.Verb]func(context.Context, runtime.Disks) error{
			runtime.VerbObserveDisk: func(ctx context.Context, able runtime.Disks) error { _, err := able.ObserveDisk(ctx, d); return err },
			runtime.VerbEnsureDisk:  func(ctx context.Context, able runtime.Disks) error { _, err := able.EnsureDisk(ctx, d); return err },
			runtime.VerbDeleteDisk:  func(ctx context.Context, able runtime.Disks) error { return able.DeleteDisk(ctx, d) },
			runtime.VerbAttach: func(ctx context.Context, able runtime.Disks) error {
				return able.Attach(ctx, runtime.Machine{UID: "vm"}, d)
			},
			runtime.VerbDetach: func(ctx context.Context, able runtime.Disks) error {
				return able.Detach(ctx, runtime.Machine{UID: "vm"}, d.UID)
			},
		} {
			before := len(w.Calls())
			err := runtime.UseDisk(t.Context(), client, verb, d, runtime.Machine{}, call)
			judged := verb == runtime.VerbEnsureDisk || verb == runtime.VerbAttach
			if c.is(err) != judged || (len(w.Calls()) == before) != judged {
				t.Errorf("%s: %s: got error %v", name, verb, err)
			}
		}
	}
	asked := &v1alpha1.VirtualDisk{}
	d := runtime.Disk{NamespacedName: kubetypes.NamespacedName{Namespace: "ns", Name: "data"}, UID: "uid", Spec: &v1alpha1.VirtualDiskSpec{Size: resource.MustParse("1Gi")}}
	allow := tenancy{admitDisk: func(_ context.Context, disk *v1alpha1.VirtualDisk) error { asked = disk; return nil }}
	err := allow.ofDisks(t.Context(), &runtime.Call{Verb: runtime.VerbAttach, Disk: d}, func(context.Context) error { return nil })
	if err != nil || asked.Namespace != "ns" || asked.Name != "data" || asked.UID != "uid" || !asked.Spec.Size.Equal(d.Spec.Size) {
		t.Errorf("the tenants were asked about %+v, error %v", asked, err)
	}
}
