package runtime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// migrate moves the machine through the client.
func migrate(ctx context.Context, c *runtime.Client, m runtime.Machine) error {
	return runtime.Use(ctx, c, runtime.VerbMigrate, m, func(ctx context.Context, able runtime.Migrator) error {
		return able.Migrate(ctx, m, runtime.Target{})
	})
}

// all makes every call but Observe.
func all(ctx context.Context, c *runtime.Client, m runtime.Machine) map[runtime.Verb]error {
	_, ensured := c.Ensure(ctx, m)
	return map[runtime.Verb]error{
		runtime.VerbEnsure: ensured, runtime.VerbPowerOn: c.PowerOn(ctx, m), runtime.VerbPowerOff: c.PowerOff(ctx, m, runtime.Forced),
		runtime.VerbCancel: c.Cancel(ctx, m, "task"), runtime.VerbDelete: c.Delete(ctx, m), runtime.VerbMigrate: migrate(ctx, c, m),
	}
}

// Every call passes every interceptor, the first one first, and one that gives an error keeps it from the runtime.
func TestInterceptors(t *testing.T) {
	w, refusal := fake.New(), errors.New("no")
	var passed []string
	note := func(name string, refuses error) runtime.Interceptor {
		return func(ctx context.Context, call *runtime.Call, next func(context.Context) error) error {
			if call.Machine.UID != testMachine().UID {
				t.Errorf("%s: about %+v", call.Verb, call.Machine)
			}
			passed = append(passed, name+" "+string(call.Verb))
			if refuses != nil {
				return refuses
			}
			return next(ctx)
		}
	}
	inner := runtime.NewClient(w.Client("a"), note("inner", refusal), note("never", nil))
	c := runtime.NewClient(inner, note("outer", nil), note("middle", nil))
	ctx, m := t.Context(), testMachine()
	calls := all(ctx, c, m)
	_, calls[runtime.VerbObserve] = c.Observe(ctx, m)
	for verb, err := range calls {
		if !errors.Is(err, refusal) {
			t.Errorf("%s: got error %v", verb, err)
		}
	}
	if len(calls) != 7 || len(w.Calls()) != 0 {
		t.Errorf("%d verbs were tried, %d calls reached the runtime", len(calls), len(w.Calls()))
	}
	var want []string
	for _, verb := range []string{"Ensure", "PowerOn", "PowerOff", "Cancel", "Delete", "Migrate", "Observe"} {
		want = append(want, "outer "+verb, "middle "+verb, "inner "+verb)
	}
	if diff := cmp.Diff(want, passed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A halted client observes and sends nothing, whatever is made of it later.
func TestHaltedClient(t *testing.T) {
	w := fake.New()
	var seen []runtime.Verb
	c := runtime.NewClient(runtime.NewClient(w.Client("a")).Halted(func(context.Context) error { return runtime.ErrReadOnly }), func(ctx context.Context, call *runtime.Call, next func(context.Context) error) error {
		seen = append(seen, call.Verb)
		return next(ctx)
	})
	ctx, m := t.Context(), testMachine()
	calls := all(ctx, c, m)
	for _, verb := range []runtime.Verb{runtime.VerbEnsureDisk, runtime.VerbDeleteDisk, runtime.VerbAttach, runtime.VerbDetach} {
		calls[verb] = runtime.UseDisk(ctx, c, verb, runtime.Disk{}, m, func(context.Context, runtime.Disks) error { return nil })
	}
	for verb, err := range calls {
		if !runtime.IsReadOnly(err) || runtime.MayHaveActed(err) || runtime.Reason(err) != "ReadOnly" {
			t.Errorf("%s: got error %v", verb, err)
		}
	}
	if _, err := c.Observe(ctx, m); err != nil {
		t.Errorf("it does not observe: %v", err)
	}
	looked := false
	err := runtime.UseDisk(ctx, c, runtime.VerbObserveDisk, runtime.Disk{}, m, func(context.Context, runtime.Disks) error { looked = true; return nil })
	if err != nil || !looked {
		t.Errorf("it does not observe disks: %v", err)
	}
	if len(seen) != len(calls)+2 || len(w.Calls()) != 1 {
		t.Errorf("interceptors saw %v, the runtime %d calls", seen, len(w.Calls()))
	}
}

// An interceptor sees what was seen, and can change it.
func TestInterceptorOfObserve(t *testing.T) {
	hide := func(ctx context.Context, call *runtime.Call, next func(context.Context) error) error {
		err := next(ctx)
		if !call.Seen.Exists {
			t.Error("it was not told what was seen")
		}
		call.Seen = runtime.Observation{}
		return err
	}
	w := fake.New()
	w.AddInstance(fake.Instance{Owner: testMachine().UID})
	if seen, err := runtime.NewClient(w.Client("a"), hide).Observe(t.Context(), testMachine()); err != nil || seen.Exists {
		t.Errorf("got %+v, error %v", seen, err)
	}
}

// The embedded interface hides that the fake can move machines.
func TestAbilities(t *testing.T) {
	bare := runtime.NewClient(struct{ runtime.Runtime }{fake.New().Client("a")})
	if runtime.Can[runtime.Migrator](bare) || !runtime.Can[runtime.Migrator](runtime.NewClient(fake.New().Client("a"))) {
		t.Error("who can move machines and who cannot is mistaken")
	}
	if err := migrate(t.Context(), bare, testMachine()); !runtime.IsNotSupported(err) {
		t.Errorf("a move without the ability gives %v", err)
	}
}
