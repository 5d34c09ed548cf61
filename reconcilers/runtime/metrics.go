package runtime

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts and times calls of runtimes. Labels are the name of the runtime, the verb and the outcome, never the
// name of a machine.
type Metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	now      func() time.Time
}

// NewMetrics registers the metrics. now is only compared with itself.
func NewMetrics(registry prometheus.Registerer, now func() time.Time) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sallyport_runtime_calls_total",
			Help: "Total number of calls to runtimes, by runtime, verb and outcome.",
		}, []string{"runtime", "verb", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sallyport_runtime_call_duration_seconds",
			Help:    "Duration of calls to runtimes in seconds, whatever their outcome.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"runtime", "verb"}),
		now: now,
	}
	registry.MustRegister(m.calls, m.duration)
	return m
}

// Count returns an interceptor that counts and times calls under that name, such as vsphere.
func (m *Metrics) Count(name string) Interceptor {
	return func(ctx context.Context, call *Call, next func(context.Context) error) error {
		began := m.now()
		err := next(ctx)
		m.duration.WithLabelValues(name, string(call.Verb)).Observe(m.now().Sub(began).Seconds())
		m.calls.WithLabelValues(name, string(call.Verb), outcome(err)).Inc()
		return err
	}
}

// outcome returns the label for the result of a call.
func outcome(err error) string {
	if err == nil {
		return "success"
	}
	return cmp.Or(kinds[kindOf(err)].outcome, "failed")
}

// Verb names a method of a Runtime, for metrics and for the logs of fakes.
type Verb string

// The verbs.
const (
	VerbObserve  Verb = "Observe"
	VerbEnsure   Verb = "Ensure"
	VerbPowerOn  Verb = "PowerOn"
	VerbPowerOff Verb = "PowerOff"
	VerbCancel   Verb = "Cancel"
	VerbDelete   Verb = "Delete"
	VerbMigrate  Verb = "Migrate"
	VerbAdjust   Verb = "Adjust"

	VerbHibernate Verb = "Hibernate"
	VerbWake      Verb = "Wake"
	VerbRelease   Verb = "Release"
	VerbRestore   Verb = "Restore"
	VerbRetract   Verb = "Retract"
	VerbDiscard   Verb = "Discard"

	VerbObserveDisk Verb = "ObserveDisk"
	VerbEnsureDisk  Verb = "EnsureDisk"
	VerbDeleteDisk  Verb = "DeleteDisk"
	VerbAttach      Verb = "Attach"
	VerbDetach      Verb = "Detach"
)
