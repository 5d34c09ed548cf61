package certs

import (
	"crypto/x509"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics show when what is served expires. A replica that serves nothing has none.
type metrics struct{ expiry *prometheus.GaugeVec }

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sallyport_certificate_expiry_timestamp_seconds",
		Help: "Expiry time, in seconds since the epoch, of the certificate that this replica serves (serving) and of the authority that signed it (ca).",
	}, []string{"which"})}
	if registry != nil {
		registry.MustRegister(m.expiry)
	}
	return m
}

func (m *metrics) show(leaf, ca *x509.Certificate) {
	m.expiry.WithLabelValues("serving").Set(float64(leaf.NotAfter.Unix()))
	if ca != nil {
		m.expiry.WithLabelValues("ca").Set(float64(ca.NotAfter.Unix()))
	}
}
