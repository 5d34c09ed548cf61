package policy

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// In a manager: everything is looked at when it changes.
func TestWatches(t *testing.T) {
	f := newFixture(t)
	skip := true
	mgr, err := ctrl.NewManager(f.plane.Config, ctrl.Options{
		Scheme: f.api.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache:      cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	f.Must(err)
	changed := make(chan event.GenericEvent)
	f.Client, f.Live, f.Changed, f.Tester = mgr.GetClient(), mgr.GetAPIReader(), changed, &actor{}
	f.Must(f.SetupWithManager(mgr))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() { f.Must(<-ended) })
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain: %s", what)
			}
		}
	}
	reason := func(c v1alpha1.ConditionType) string {
		if p := f.policy("guard"); p != nil && c.In(p.Status.Conditions) != nil {
			return c.In(p.Status.Conditions).Reason
		}
		return ""
	}
	f.ships("1.0.0", toy("guard", "a"))
	await("the policy is applied", func() bool { return f.source("guard") == "a" && reason("Shipped") == "Shipped" })
	await("its tests have passed", func() bool { return reason("TestsPassed") == "TestsPassed" })
	f.word("guard", "mine")
	await("it is edited", func() bool {
		return reason("Edited") == "FieldsEdited" && slices.Equal(f.stored("guard"), []string{"a", "mine"})
	})
	f.ships("1.0.0", toy("guard", "b"))
	await("the edit stays", func() bool { return reason("Shipped") == "Shipped" && f.source("guard") == "mine" })
	f.patched("guard", `{"metadata":{"annotations":{"sallyport.dev/release":"reset"}}}`)
	await("it is reset", func() bool { return f.source("guard") == "b" && reason("Edited") == "AsShipped" })
	f.Must(f.api.Delete(t.Context(), f.policy("guard")))
	await("it is put back", func() bool { return f.source("guard") == "b" && reason("Active") == "CurrentRevision" })
	f.Must(f.api.DeleteAllOf(t.Context(), &appsv1.ControllerRevision{}, client.InNamespace(f.Namespace)))
	await("its revision is stored again", func() bool { return slices.Equal(f.stored("guard"), []string{"b"}) })

	theirs := toy("theirs", "needs:x")
	f.Must(f.api.Create(t.Context(), &theirs))
	await("it does not compile", func() bool {
		p := f.policy("theirs")
		c := v1alpha1.ConditionCompiled.In(p.Status.Conditions)
		return c != nil && c.Reason == "CompileFailed"
	})
	lib := toy("lib", "has:x", library)
	f.Must(f.api.Create(t.Context(), &lib))
	changed <- event.GenericEvent{Object: &theirs} // the catalog: what it needs has come
	await("it compiles", func() bool {
		return v1alpha1.ConditionCompiled.In(f.policy("theirs").Status.Conditions).Reason == "Compiled"
	})
	f.ships("1.0.0")
	await("it is gone", func() bool { return f.policy("guard") == nil })
}
