package keeper

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the policies of a replica. Names of policies are labels, as in the metrics of decisions; revisions are labels only
// while they are active.
type metrics struct {
	reloads *prometheus.CounterVec
	info    *prometheus.Desc
	weight  *prometheus.Desc
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
		weight: prometheus.NewDesc("sallyport_policy_memory_bytes",
			"Estimated memory that a policy needs in this replica. The limit for all policies together is 192 MiB.", []string{"policy"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (k *Keeper) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{k.metrics.info, k.metrics.weight} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (k *Keeper) Collect(out chan<- prometheus.Metric) {
	for _, s := range k.States() {
		out <- prometheus.MustNewConstMetric(k.metrics.info, prometheus.GaugeValue, 1, s.Name, stage(s), s.ActiveHash)
	}
	for name, weight := range k.Weights() {
		out <- prometheus.MustNewConstMetric(k.metrics.weight, prometheus.GaugeValue, float64(weight), name)
	}
}

// Weights returns the estimated memory of the active policies, by name.
func (k *Keeper) Weights() map[string]int64 {
	set, _ := k.Decides()
	weights := map[string]int64{}
	if set == nil {
		return weights
	}
	for _, p := range set.Policies() {
		if weight := p.Weight(); weight > 0 {
			weights[p.Name()] = weight
		}
	}
	return weights
}
