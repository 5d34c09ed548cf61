package keeper

import "github.com/prometheus/client_golang/prometheus"

// metrics of the policies of a replica. Names of policies are labels, as in those of decisions; a revision is one only as long
// as it decides.
type metrics struct {
	reloads *prometheus.CounterVec
	info    *prometheus.Desc
}

func newMetrics() *metrics {
	return &metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sallyport_policy_reloads_total",
			Help: "Changes of policies and libraries that this replica took up, by what became of them: current, last_good, pending, broken, library, broken_library.",
		}, []string{"result"}),
		info: prometheus.NewDesc("sallyport_policy_info",
			"The policies and libraries of this replica, each with its state (as sallyport_policy_reloads_total has it) and the revision that decides, \"\" if none does.",
			[]string{"policy", "state", "revision"}, nil),
	}
}

// Describe is for the registry of metrics.
func (k *Keeper) Describe(out chan<- *prometheus.Desc) { out <- k.metrics.info }

// Collect tells the registry of metrics which policies there are.
func (k *Keeper) Collect(out chan<- prometheus.Metric) {
	for _, s := range k.States() {
		out <- prometheus.MustNewConstMetric(k.metrics.info, prometheus.GaugeValue, 1, s.Name, stage(s), s.ActiveHash)
	}
}
