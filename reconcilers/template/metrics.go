package template

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

var domainsDesc = prometheus.NewDesc("sallyport_template_failure_domains",
	"Number of failure domains of VSphereTemplates, by the reason of their condition Ready, such as TemplateReady.", []string{"reason"}, nil)

// Metrics counts templates. Labels are reasons and results, never a name. A nil *Metrics records nothing.
type Metrics struct {
	registry prometheus.Registerer
	swaps    *prometheus.CounterVec
	imports  *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		registry: registry,
		swaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sallyport_template_swaps_total",
			Help: "Total number of swaps of the names of two templates, by result: Succeeded or Failed. After a failed swap, the previous template gets its name back.",
		}, []string{"result"}),
		imports: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sallyport_template_import_seconds",
			Help:    "Time in seconds to download and import a release of a template, by result: Succeeded, or the reason of the failure.",
			Buckets: []float64{1, 10, 60, 300, 900, 1800, 3600, 7200, 10800},
		}, []string{"result"}),
	}
	for _, result := range []string{succeeded, failed} { // a counter that appears with 1 has not increased for Prometheus
		m.swaps.WithLabelValues(result)
	}
	registry.MustRegister(m.swaps, m.imports)
	return m
}

// register registers the gauge of the failure domains, which only the leader reports.
func (m *Metrics) register(templates client.Reader, elected <-chan struct{}) error {
	if m == nil {
		return nil
	}
	return m.registry.Register(&objectmetrics.Collector[*v1alpha1.VSphereTemplateList]{
		Cache: templates, Elected: elected, Descs: []*prometheus.Desc{domainsDesc},
		New: func() *v1alpha1.VSphereTemplateList { return &v1alpha1.VSphereTemplateList{} }, Of: reportDomains,
	})
}

const succeeded, failed = "Succeeded", "Failed"

func (m *Metrics) countSwap(err error) {
	if m == nil {
		return
	}
	result := succeeded
	if err != nil {
		result = failed
	}
	m.swaps.WithLabelValues(result).Inc()
}

func (m *Metrics) observeImport(took time.Duration, err error) {
	if m == nil {
		return
	}
	result := succeeded
	if err != nil {
		result = string(runtime.Reason(err))
	}
	m.imports.WithLabelValues(result).Observe(took.Seconds())
}

func reportDomains(list *v1alpha1.VSphereTemplateList, report objectmetrics.Report) {
	count := map[string]int{}
	for i := range list.Items {
		for j := range list.Items[i].Status.FailureDomains {
			if ready := v1alpha1.ConditionReady.In(list.Items[i].Status.FailureDomains[j].Conditions); ready != nil {
				count[ready.Reason]++
			}
		}
	}
	for reason, n := range count {
		report(domainsDesc, n, reason)
	}
}
