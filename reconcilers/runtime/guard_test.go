package runtime_test

import (
	"context"
	"errors"
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/fake"
)

func TestGuard(t *testing.T) {
	w := fake.New()
	refusal := runtime.NewPermission(nil, "not here")
	rt := runtime.Guard(w.Client("a"), func(_ context.Context, m runtime.Machine) error {
		if m.UID != testMachine().UID {
			t.Errorf("asked about %+v", m)
		}
		return refusal
	})
	ctx, m := t.Context(), testMachine()
	_, ensured := rt.Ensure(ctx, m)
	for verb, err := range map[runtime.Verb]error{
		runtime.VerbEnsure: ensured, runtime.VerbPowerOn: rt.PowerOn(ctx, m), runtime.VerbPowerOff: rt.PowerOff(ctx, m, runtime.Graceful),
		runtime.VerbMigrate: rt.(runtime.Migrator).Migrate(ctx, m, runtime.Target{}),
	} {
		if !errors.Is(err, refusal) {
			t.Errorf("%s: got error %v", verb, err)
		}
	}
	if n := len(w.Calls()); n != 0 {
		t.Errorf("%d calls reached the runtime", n)
	}
	_, observed := rt.Observe(ctx, m)
	if err := errors.Join(observed, rt.Cancel(ctx, m, "task"), rt.Delete(ctx, m)); err != nil {
		t.Errorf("what ends things is refused: %v", err)
	}
}
