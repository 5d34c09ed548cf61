package runtime

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts and times the calls of runtimes. Its labels are the name that a runtime was given, the verb and the
// outcome: never the name of a machine.
type Metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	now      func() time.Time
}

// NewMetrics registers the metrics. The clock is handed in; it is only ever compared with itself.
func NewMetrics(registry prometheus.Registerer, now func() time.Time) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sallyport_runtime_calls_total",
			Help: "Calls of runtimes, by runtime, verb and outcome.",
		}, []string{"runtime", "verb", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sallyport_runtime_call_duration_seconds",
			Help:    "How long calls of runtimes took, whatever came of them.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"runtime", "verb"}),
		now: now,
	}
	registry.MustRegister(m.calls, m.duration)
	return m
}

// Instrument wraps a runtime so that its calls are counted under that name, such as vsphere. What it returns is a Migrator
// exactly if the runtime is one.
func (m *Metrics) Instrument(name string, inner Runtime) Runtime {
	outer := &instrumented{metrics: m, name: name, inner: inner}
	if migrator, ok := inner.(Migrator); ok {
		return &instrumentedMigrator{instrumented: outer, migrator: migrator}
	}
	return outer
}

type instrumented struct {
	metrics *Metrics
	name    string
	inner   Runtime
}

type instrumentedMigrator struct {
	*instrumented
	migrator Migrator
}

// measure makes the call and records it.
func (i *instrumented) measure(verb Verb, call func() error) error {
	began := i.metrics.now()
	err := call()
	i.metrics.duration.WithLabelValues(i.name, string(verb)).Observe(i.metrics.now().Sub(began).Seconds())
	i.metrics.calls.WithLabelValues(i.name, string(verb), outcome(err)).Inc()
	return err
}

// outcome is the word for what came of a call.
func outcome(err error) string {
	if err == nil {
		return "success"
	}
	switch kindOf(err) {
	case KindNotFound:
		return "not_found"
	case KindInvalidState:
		return "invalid_state"
	case KindToolsUnavailable:
		return "tools_unavailable"
	case KindUnavailable:
		return "unavailable"
	case KindPermission:
		return "permission"
	case KindOwnedByAnother:
		return "owned_by_another"
	default:
		return "failed"
	}
}

// Observe calls the runtime and records the call.
func (i *instrumented) Observe(ctx context.Context, machine Machine) (seen Observation, err error) {
	err = i.measure(VerbObserve, func() error {
		seen, err = i.inner.Observe(ctx, machine)
		return err
	})
	return seen, err
}

// Ensure calls the runtime and records the call.
func (i *instrumented) Ensure(ctx context.Context, machine Machine) (instanceID string, err error) {
	err = i.measure(VerbEnsure, func() error {
		instanceID, err = i.inner.Ensure(ctx, machine)
		return err
	})
	return instanceID, err
}

// PowerOn calls the runtime and records the call.
func (i *instrumented) PowerOn(ctx context.Context, machine Machine) error {
	return i.measure(VerbPowerOn, func() error { return i.inner.PowerOn(ctx, machine) })
}

// PowerOff calls the runtime and records the call.
func (i *instrumented) PowerOff(ctx context.Context, machine Machine, mode Mode) error {
	return i.measure(VerbPowerOff, func() error { return i.inner.PowerOff(ctx, machine, mode) })
}

// Cancel calls the runtime and records the call.
func (i *instrumented) Cancel(ctx context.Context, machine Machine) error {
	return i.measure(VerbCancel, func() error { return i.inner.Cancel(ctx, machine) })
}

// Delete calls the runtime and records the call.
func (i *instrumented) Delete(ctx context.Context, machine Machine) error {
	return i.measure(VerbDelete, func() error { return i.inner.Delete(ctx, machine) })
}

// Migrate calls the runtime and records the call.
func (i *instrumentedMigrator) Migrate(ctx context.Context, machine Machine, target Target) error {
	return i.measure(VerbMigrate, func() error { return i.migrator.Migrate(ctx, machine, target) })
}
