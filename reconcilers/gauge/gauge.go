// Package gauge computes metrics of objects when they are scraped, so that deleted objects have none.
package gauge

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cacheTimeout limits the wait for the cache, which answers at once after it has synced.
const cacheTimeout = time.Second

// Report reports one value.
type Report func(desc *prometheus.Desc, value int, labels ...string)

// Collector collects metrics of the objects of a list. It is a [prometheus.Collector].
type Collector[List client.ObjectList] struct {
	// Cache contains the objects.
	Cache client.Reader
	// Elected is closed when this replica leads. Other replicas report nothing, because sums would count objects
	// twice.
	Elected <-chan struct{}
	// Descs are the metrics.
	Descs []*prometheus.Desc
	New   func() List
	// Match are the indexes of the cache that select the objects. If it is nil, all objects of the kind are listed.
	Match client.MatchingFields
	// Of reports the values for a list. Its objects belong to the cache and must not be modified.
	Of func(list List, report Report)
}

// Describe sends the descriptions of the metrics.
func (c *Collector[List]) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range c.Descs {
		descs <- desc
	}
}

// Collect reads the objects from the cache.
func (c *Collector[List]) Collect(metrics chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
	defer cancel()
	list, options := c.New(), []client.ListOption{client.UnsafeDisableDeepCopy}
	if c.Match != nil {
		options = append(options, c.Match)
	}
	if err := c.Cache.List(ctx, list, options...); err != nil {
		return // an invalid metric would fail the whole scrape
	}
	c.Of(list, func(desc *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	})
}

// Groups counts objects by the value of a label, and keeps since when the oldest object of each group is in it.
type Groups map[string]*group

type group struct {
	number int
	since  int // Unix time
}

// Add counts an object that is in the group since that time.
func (g Groups) Add(label string, since time.Time) {
	of := g[label]
	if of == nil {
		of = &group{since: int(since.Unix())}
		g[label] = of
	}
	of.number, of.since = of.number+1, min(of.since, int(since.Unix()))
}

// Report reports the size of each group, and since when its oldest object is in it, as Unix time. If number is nil, it omits the sizes.
func (g Groups) Report(number, since *prometheus.Desc, report Report) {
	for label, of := range g {
		if number != nil {
			report(number, of.number, label)
		}
		report(since, of.since, label)
	}
}
