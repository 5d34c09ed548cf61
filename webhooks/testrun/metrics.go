package testrun

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of a test run in metrics.
const (
	resultPassed   = "passed"
	resultRefused  = "refused"
	resultExceeded = "limit_exceeded"
	resultCached   = "cached"
	resultBusy     = "busy"
	resultError    = "error"
)

type metrics struct {
	runs    *prometheus.CounterVec
	seconds prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sallyport_policy_test_runs_total",
			Help: "RegoPolicies that were compiled and tested before they were stored or shown, by result.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sallyport_policy_test_runs_seconds",
			Help:    "Time to compile and test a RegoPolicy, in seconds, including the wait for a free slot.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 3, 4, 5, 10, 30},
		}),
	}
	for _, result := range []string{resultPassed, resultRefused, resultExceeded, resultCached, resultBusy, resultError} {
		m.runs.WithLabelValues(result)
	}
	registry.MustRegister(m.runs, m.seconds)
	return m
}

func (m *metrics) count(f *Finding, err error, took time.Duration) {
	result := resultPassed
	switch {
	case errors.Is(err, errBusy):
		result = resultBusy
	case err != nil:
		result = resultError
	case f.Has(LimitExceeded):
		result = resultExceeded
	case f.Refused() != nil:
		result = resultRefused
	}
	m.runs.WithLabelValues(result).Inc()
	m.seconds.Observe(took.Seconds())
}
