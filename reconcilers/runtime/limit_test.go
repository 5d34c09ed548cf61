package runtime_test

import (
	"context"
	"testing"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func TestLimitBoundsCalls(t *testing.T) {
	w := fake.New()
	stall := fake.NewStall(fake.ActAfter)
	w.Script(fake.At{Verb: runtime.VerbObserve}, stall.Fault())
	rt := runtime.NewClient(w.Client("a"), runtime.Limits{Call: time.Millisecond}.Keep)
	if _, err := rt.Observe(context.Background(), testMachine()); !runtime.IsUnavailable(err) || !runtime.MayHaveActed(err) {
		t.Errorf("got error %v from a runtime that does not answer", err)
	}
}

func TestLimitSendsNothingWhileItHasToWait(t *testing.T) {
	w := fake.New()
	left := time.Second
	rt := runtime.NewClient(w.Client("a"), runtime.Limits{Wait: func() time.Duration { return left }}.Keep)
	ctx, m := t.Context(), testMachine()
	for verb, err := range all(ctx, rt, m) {
		if !runtime.IsTakingOver(err) || runtime.MayHaveActed(err) {
			t.Errorf("%s: got error %v while the process has to wait", verb, err)
		}
	}
	if n := len(w.Calls()); n != 0 {
		t.Errorf("%d calls reached the runtime", n)
	}
	if seen, err := rt.Observe(ctx, m); err != nil || seen.Quiet() {
		t.Errorf("a look during the wait gave %+v, error %v: what another process sends may come after it", seen, err)
	}
	w.Script(fake.At{Verb: runtime.VerbObserve}, fake.Fail(runtime.NewOwnedByAnother(nil, "theirs")))
	if _, err := rt.Observe(ctx, m); !runtime.IsTakingOver(err) {
		t.Errorf("nothing of ours during the wait: got error %v", err)
	}
	left = 0
	if seen, err := rt.Observe(ctx, m); err != nil || !seen.Quiet() {
		t.Errorf("a look after the wait gave %+v, error %v", seen, err)
	}
	for verb, err := range all(ctx, rt, m) {
		if runtime.IsTakingOver(err) {
			t.Errorf("%s: got error %v after the wait", verb, err)
		}
	}
}
