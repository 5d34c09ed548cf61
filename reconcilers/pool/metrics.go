package pool

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
)

// maxMeasured limits the pools with metrics of their own: each has up to six.
const maxMeasured = 500

var (
	poolsDesc = prometheus.NewDesc("sallyport_pools",
		"Number of VirtualMachinePools. At most 500 have metrics of their own; namespaces take turns, by name.", nil, nil)
	replicasDesc = prometheus.NewDesc("sallyport_pool_replicas",
		"Number of members of a VirtualMachinePool, by state: wanted, present, ready, stopped as they should be, and updated to the current template and, if the pool follows one, release.",
		[]string{"pool_namespace", "pool", "state"}, nil)
	blockedDesc = prometheus.NewDesc("sallyport_pool_scale_down_blocked",
		"1 while members of a VirtualMachinePool cannot be removed as they should, by reason: MembersBusy, DeletionRefused or NobodyNamed.",
		[]string{"pool_namespace", "pool", "reason"}, nil)
)

func collector(pools client.Reader, elected <-chan struct{}) prometheus.Collector {
	return &objectmetrics.Collector[*v1alpha1.VirtualMachinePoolList]{
		Cache: pools, Elected: elected, Descs: []*prometheus.Desc{poolsDesc, replicasDesc, blockedDesc},
		New: func() *v1alpha1.VirtualMachinePoolList { return &v1alpha1.VirtualMachinePoolList{} }, Of: reportPools,
	}
}

func reportPools(list *v1alpha1.VirtualMachinePoolList, report objectmetrics.Report) {
	report(poolsDesc, len(list.Items))
	for _, p := range measured(list.Items) {
		v := view{pool: p}
		report(replicasDesc, v.desired(), p.Namespace, p.Name, "wanted")
		report(replicasDesc, int(p.Status.Replicas), p.Namespace, p.Name, "present")
		report(replicasDesc, int(p.Status.ReadyReplicas), p.Namespace, p.Name, "ready")
		report(replicasDesc, int(p.Status.StoppedReplicas), p.Namespace, p.Name, "stopped")
		report(replicasDesc, int(p.Status.UpdatedReplicas), p.Namespace, p.Name, "updated")
		if meta.IsStatusConditionTrue(p.Status.Conditions, string(v1alpha1.ConditionScaleDownBlocked)) {
			report(blockedDesc, 1, p.Namespace, p.Name, v1alpha1.ConditionScaleDownBlocked.In(p.Status.Conditions).Reason)
		}
	}
}

// measured returns the pools with metrics of their own. Namespaces take turns, so that one with many pools does not hide those of others.
func measured(pools []v1alpha1.VirtualMachinePool) (all []*v1alpha1.VirtualMachinePool) {
	turns, turn := map[string]int{}, map[*v1alpha1.VirtualMachinePool]int{}
	for i := range pools {
		all = append(all, &pools[i])
	}
	slices.SortFunc(all, func(a, b *v1alpha1.VirtualMachinePool) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range all {
		turn[p] = turns[p.Namespace]
		turns[p.Namespace]++
	}
	slices.SortStableFunc(all, func(a, b *v1alpha1.VirtualMachinePool) int { return cmp.Compare(turn[a], turn[b]) })
	return all[:min(len(all), maxMeasured)]
}
