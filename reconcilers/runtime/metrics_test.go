package runtime_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

func testMachine() runtime.Machine {
	return runtime.Machine{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "vm"}, UID: "uid"}
}

func TestCount(t *testing.T) {
	registry := prometheus.NewRegistry()
	var now time.Time
	metrics := runtime.NewMetrics(registry, func() time.Time {
		now = now.Add(2 * time.Second)
		return now
	})
	w := fake.New()
	w.SetSteps(runtime.TaskCreate, 0)
	w.SetSteps(runtime.TaskRelocate, 0)
	rt := runtime.NewClient(w.Client("a"), metrics.Count("fake"))
	// A second runtime goes by its own name in the same metrics.
	if _, err := runtime.NewClient(w.Client("b"), metrics.Count("other")).Observe(t.Context(), testMachine()); err != nil {
		t.Fatal(err)
	}

	ctx, m := t.Context(), testMachine()
	if id, err := rt.Ensure(ctx, m); err != nil || id == "" {
		t.Fatalf("got instance %q, error %v", id, err)
	}
	if seen, err := rt.Observe(ctx, m); err != nil || !seen.Exists {
		t.Fatalf("got %+v, error %v", seen, err)
	}
	for _, err := range []error{
		nil,
		runtime.NewNotFound(nil, "x"), runtime.NewInvalidState(nil, "x"), runtime.NewToolsUnavailable(nil, "x"),
		runtime.NewUnavailable(nil, "x"), runtime.NewPermission(nil, "x"), runtime.NewOwnedByAnother(nil, "x"),
		errors.New("x"),
	} {
		if err != nil {
			w.Script(fake.At{Verb: runtime.VerbPowerOff}, fake.Fail(err))
		}
		if got := rt.PowerOff(ctx, m, runtime.Forced); !errors.Is(got, err) {
			t.Errorf("got error %v, want %v", got, err)
		}
	}
	poweredOn := rt.PowerOn(ctx, m)
	begun, _ := w.Client("looker").Observe(ctx, m)
	for verb, err := range map[runtime.Verb]error{
		runtime.VerbPowerOn: poweredOn,
		runtime.VerbCancel:  rt.Cancel(ctx, m, begun.InFlight[0].ID),
		runtime.VerbMigrate: migrate(ctx, rt, m),
		runtime.VerbDelete:  rt.Delete(ctx, m),
	} {
		if err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}

	want := `
# HELP sallyport_runtime_calls_total Total number of calls to runtimes, by runtime, verb and outcome.
# TYPE sallyport_runtime_calls_total counter
sallyport_runtime_calls_total{outcome="success",runtime="fake",verb="Cancel"} 1
sallyport_runtime_calls_total{outcome="success",runtime="fake",verb="Delete"} 1
sallyport_runtime_calls_total{outcome="success",runtime="fake",verb="Ensure"} 1
sallyport_runtime_calls_total{outcome="success",runtime="fake",verb="Migrate"} 1
sallyport_runtime_calls_total{outcome="success",runtime="fake",verb="Observe"} 1
sallyport_runtime_calls_total{outcome="success",runtime="other",verb="Observe"} 1
sallyport_runtime_calls_total{outcome="failed",runtime="fake",verb="PowerOff"} 1
sallyport_runtime_calls_total{outcome="invalid_state",runtime="fake",verb="PowerOff"} 1
sallyport_runtime_calls_total{outcome="not_found",runtime="fake",verb="PowerOff"} 1
sallyport_runtime_calls_total{outcome="owned_by_another",runtime="fake",verb="PowerOff"} 1
sallyport_runtime_calls_total{outcome="permission",runtime="fake",verb="PowerOff"} 1
sallyport_runtime_calls_total{outcome="success",runtime="fake",verb="PowerOff"} 1
sallyport_runtime_calls_total{outcome="tools_unavailable",runtime="fake",verb="PowerOff"} 1
sallyport_runtime_calls_total{outcome="unavailable",runtime="fake",verb="PowerOff"} 1
sallyport_runtime_calls_total{outcome="success",runtime="fake",verb="PowerOn"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "sallyport_runtime_calls_total"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "sallyport_runtime_call_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if h := metric.GetHistogram(); h.GetSampleSum() != 2*float64(h.GetSampleCount()) {
				t.Errorf("calls of two seconds each are recorded as %v", metric)
			}
		}
	}
}
