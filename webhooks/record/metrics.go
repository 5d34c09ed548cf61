package record

import (
	"github.com/prometheus/client_golang/prometheus"

	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// metrics are the metrics of decisions. Labels are bounded: names of policies and reasons from their METADATA, never names of objects or users.
type metrics struct {
	decisions *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	confirms  *prometheus.CounterVec
	overrides *prometheus.CounterVec
	lost      prometheus.Counter
	checks    *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	m := &metrics{
		decisions: counter("sallyport_decisions_total",
			"Policy decisions on admission requests, by policy, mode, verdict and reason. A decision counts once for each of its denials.", "webhook", "policy", "mode", "verdict", "reason"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sallyport_decision_duration_seconds",
			Help:    "Time that one policy took for one request, in seconds, including reading facts.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"webhook", "policy"}),
		confirms: counter("sallyport_confirmations_total",
			"Denials based on cached facts that were evaluated again with live facts, by outcome.", "policy", "outcome"),
		overrides: counter("sallyport_policy_overrides_total",
			"Requests admitted by override of a policy, without dry runs, by policy.", "policy"),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sallyport_decision_records_lost_total",
			Help: "Decision records that could not be written.",
		}),
		checks: counter("sallyport_checked_decisions_total",
			"Decisions that were evaluated again by OPA's interpreter, by whether both results are the same. A difference is a bug in Sallyport.", "policy", "result"),
	}
	registry.MustRegister(m.duration, m.lost)
	return m
}

func (m *metrics) count(d *decision.Decision) {
	for _, v := range d.Verdicts() {
		name := v.Policy.Name()
		m.duration.WithLabelValues(d.Endpoint, name).Observe(v.Took.Seconds())
		denials := v.Denials()
		for _, denial := range denials {
			m.decisions.WithLabelValues(d.Endpoint, name, string(v.Mode), v.Result(), denial.Reason).Inc()
		}
		if len(denials) == 0 {
			m.decisions.WithLabelValues(d.Endpoint, name, string(v.Mode), v.Result(), "").Inc()
		}
		if v.Decision != nil && v.Decision.Confirmation != engine.NotNeeded {
			m.confirms.WithLabelValues(name, string(v.Decision.Confirmation)).Inc()
		}
	}
}

// countOverrides counts overrides of admitted requests. Arbitration is left out: the override was counted at admission.
func (m *metrics) countOverrides(d *decision.Decision) {
	for _, v := range d.Verdicts() {
		if v.Override != nil && d.Endpoint == decision.Validating {
			m.overrides.WithLabelValues(v.Policy.Name()).Inc()
		}
	}
}

// countCheck counts the comparison of a decision with that of OPA's interpreter.
func (m *metrics) countCheck(policy string, same bool) {
	result := "differs"
	if same {
		result = "same"
	}
	m.checks.WithLabelValues(policy, result).Inc()
}

// forget removes the metrics of a policy.
func (m *metrics) forget(policy string) {
	labels := prometheus.Labels{"policy": policy}
	for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.decisions, m.duration, m.confirms, m.overrides, m.checks} {
		vec.DeletePartialMatch(labels)
	}
}
