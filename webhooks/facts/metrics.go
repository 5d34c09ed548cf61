package facts

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	syncedDesc = prometheus.NewDesc("sallyport_fact_cache_synced",
		"1 if this replica's cache of a kind that policies read has synced, otherwise 0.", []string{"kind"}, nil)
	heardDesc = prometheus.NewDesc("sallyport_fact_cache_heard_timestamp_seconds",
		"When a scrape first saw the latest resource version of this replica's cache of a kind, in seconds since 1970. The API server sends a new one every few minutes.",
		[]string{"kind"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Store) Describe(out chan<- *prometheus.Desc) {
	out <- syncedDesc
	out <- heardDesc
}

// Collect implements prometheus.Collector. Labels are the kinds that policies read.
func (s *Store) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, k := range s.kinds {
		if of.live {
			continue
		}
		synced, name := 0.0, of.GroupVersion().String()+"/"+of.Kind
		if k.synced() {
			synced = 1
			if is := k.informer.LastSyncResourceVersion(); is != k.heard || k.heardAt.IsZero() {
				k.heard, k.heardAt = is, time.Now()
			}
			out <- prometheus.MustNewConstMetric(heardDesc, prometheus.GaugeValue, float64(k.heardAt.Unix()), name)
		}
		out <- prometheus.MustNewConstMetric(syncedDesc, prometheus.GaugeValue, synced, name)
	}
}
