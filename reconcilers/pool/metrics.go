package pool

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	// mostMeasured is how many pools have metrics of their own: each has up to five.
	mostMeasured = 500
	// scrapePatience is how long a scrape waits for the cache, which answers at once when it is there.
	scrapePatience = time.Second
)

var (
	poolsDesc = prometheus.NewDesc("sallyport_pools",
		"VirtualMachinePools that there are. The first 500, by namespace and name, have metrics of their own.", nil, nil)
	replicasDesc = prometheus.NewDesc("sallyport_pool_replicas",
		"Members of a VirtualMachinePool, by state: wanted, present, ready, and updated to the present template.",
		[]string{"namespace", "pool", "state"}, nil)
	blockedDesc = prometheus.NewDesc("sallyport_pool_scale_down_blocked",
		"1 while members of a VirtualMachinePool should go and do not, by reason: MembersBusy, DeletionRefused or NobodyNamed.",
		[]string{"namespace", "pool", "reason"}, nil)
)

// collector tells of pools as they are when it is asked, so that nothing is told of one that is gone.
type collector struct {
	pools   client.Reader
	elected <-chan struct{} // closed when this replica leads: the others say nothing, or sums would count pools twice
}

// Describe names the metrics.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- poolsDesc
	descs <- replicasDesc
	descs <- blockedDesc
}

// Collect reads the pools from the cache.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	var list v1alpha1.VirtualMachinePoolList
	if err := c.pools.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // an invalid metric would fail the scrape, with everything else that is told there
	}
	gauge := func(desc *prometheus.Desc, value int32, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(poolsDesc, int32(len(list.Items))) // #nosec G115 -- as many as objects
	slices.SortFunc(list.Items, func(a, b v1alpha1.VirtualMachinePool) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range list.Items[:min(len(list.Items), mostMeasured)] {
		p := &list.Items[i]
		l := look{pool: p}
		gauge(replicasDesc, int32(l.desired()), p.Namespace, p.Name, "wanted") // #nosec G115 -- of an int32
		gauge(replicasDesc, p.Status.Replicas, p.Namespace, p.Name, "present")
		gauge(replicasDesc, p.Status.ReadyReplicas, p.Namespace, p.Name, "ready")
		gauge(replicasDesc, p.Status.UpdatedReplicas, p.Namespace, p.Name, "updated")
		if meta.IsStatusConditionTrue(p.Status.Conditions, string(v1alpha1.ConditionScaleDownBlocked)) {
			gauge(blockedDesc, 1, p.Namespace, p.Name, v1alpha1.ConditionScaleDownBlocked.In(p.Status.Conditions).Reason)
		}
	}
}
