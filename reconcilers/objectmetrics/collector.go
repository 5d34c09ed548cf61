// Package objectmetrics computes metrics of objects when they are scraped, so that deleted objects have none.
package objectmetrics

import (
	"context"
	"slices"
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
	list, options := c.New(), []client.ListOption{}
	if c.Match != nil {
		options = append(options, c.Match)
	}
	if read(c.Cache, c.Elected, list, options...) {
		c.Of(list, to(metrics))
	}
}

// read lists objects from the cache if this replica leads, and reports whether it has. Without the objects there are no metrics, because an
// invalid metric would fail the whole scrape.
func read(cache client.Reader, elected <-chan struct{}, list client.ObjectList, options ...client.ListOption) bool {
	select {
	case <-elected:
	default:
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
	defer cancel()
	return cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...) == nil
}

func to(metrics chan<- prometheus.Metric) Report {
	return func(desc *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
}

// maxLabels is the number of labels of the largest family.
const maxLabels = 5

// Family is a pair of metrics of groups of objects: how many objects have the same labels, and since when the oldest of them has them.
type Family struct{ number, since *prometheus.Desc }

// NewFamily returns the metrics name and name_since_timestamp_seconds.
func NewFamily(name, number, since string, labels ...string) Family {
	return Family{
		number: prometheus.NewDesc(name, number, labels, nil),
		since:  prometheus.NewDesc(name+"_since_timestamp_seconds", since+", in seconds since 1970.", labels, nil),
	}
}

// Descs returns the descriptions of the metrics.
func (f Family) Descs() []*prometheus.Desc { return []*prometheus.Desc{f.number, f.since} }

// Groups counts objects by the values of labels, and keeps since when the oldest object of each group is in it.
type Groups map[[maxLabels]string]*group

type group struct {
	labels []string
	number int
	since  int // Unix time
}

// Add counts an object that has the labels since that time.
func (g Groups) Add(since time.Time, labels ...string) {
	var key [maxLabels]string
	copy(key[:], labels)
	of := g[key]
	if of == nil {
		of = &group{labels: slices.Clone(labels), since: int(since.Unix())}
		g[key] = of
	}
	of.number, of.since = of.number+1, min(of.since, int(since.Unix()))
}

// Report reports the groups.
func (g Groups) Report(family Family, report Report) {
	for _, of := range g {
		report(family.number, of.number, of.labels...)
		report(family.since, of.since, of.labels...)
	}
}
