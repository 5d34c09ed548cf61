package keeper

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the policies of a replica. Names of policies are labels, as in the metrics of decisions; revisions are labels only
// while they are active.
type metrics struct {
	reloads *prometheus.CounterVec
	info    *prometheus.Desc
}

func newMetrics() *metrics {
	return &metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sallyport_policy_reloads_total",
			Help: "Changes of policies and libraries that this replica loaded, by resulting state: current, last_good, pending, broken, library, broken_library.",
		}, []string{"result"}),
		info: prometheus.NewDesc("sallyport_policy_info",
			"Policies and libraries of this replica, with their state (see sallyport_policy_reloads_total) and the active revision, \"\" if there is none.",
			[]string{"policy", "state", "revision"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (k *Keeper) Describe(out chan<- *prometheus.Desc) {
	out <- k.metrics.info
}

// Collect implements prometheus.Collector.
func (k *Keeper) Collect(out chan<- prometheus.Metric) {
	for _, s := range k.States() {
		out <- prometheus.MustNewConstMetric(k.metrics.info, prometheus.GaugeValue, 1, s.Name, stage(s), s.ActiveHash)
	}
}
