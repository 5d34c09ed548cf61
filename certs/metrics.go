package certs

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics show what is served. A replica that serves nothing has none.
type metrics struct{ expiry, source *prometheus.GaugeVec }

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sallyport_certificate_expiry_timestamp_seconds",
			Help: "Expiry time, in seconds since the epoch, of the certificate that this replica serves (serving) and of the authority that signed it (ca).",
		}, []string{"which"}),
		prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sallyport_certificate_source",
			Help: "1 for the source of the certificate that this replica serves.",
		}, []string{"source"}),
	}
	if registry != nil {
		registry.MustRegister(m.expiry, m.source)
	}
	return m
}

func (m *metrics) show(served *offer) {
	m.expiry.WithLabelValues("serving").Set(float64(served.leaf.Leaf.NotAfter.Unix()))
	m.expiry.WithLabelValues("ca").Set(float64(served.ca.NotAfter.Unix()))
	m.source.Reset()
	m.source.WithLabelValues(string(served.mode)).Set(1)
}
