package operation

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
)

// Metrics counts and times operations. Labels are the type and the result, never a name. A nil *Metrics records
// nothing.
type Metrics struct {
	ended      *prometheus.CounterVec
	claimed    *prometheus.HistogramVec
	superseded *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	buckets := []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900}
	m := &Metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sallyport_operations_total",
			Help: "Total number of finished VirtualMachineOperations, by type and result: Succeeded, Superseded, Denied (by a policy after the creation) or the reason of the failure.",
		}, []string{"type", "result"}),
		claimed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sallyport_operation_claim_seconds",
			Help:    "Time in seconds from the creation of a VirtualMachineOperation until it claimed its machine, by type.",
			Buckets: buckets,
		}, []string{"type"}),
		superseded: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sallyport_operation_supersede_seconds",
			Help:    "Time in seconds from the claim that superseded a VirtualMachineOperation until that operation was undone, by the type of the superseded operation.",
			Buckets: buckets,
		}, []string{"type"}),
	}
	registry.MustRegister(m.ended, m.claimed, m.superseded)
	return m
}

// results are Sallyport's own reasons for the end of an operation. Any other reason is a policy's.
var results = []v1alpha1.ConditionReason{
	v1alpha1.ReasonSucceeded, v1alpha1.ReasonSuperseded, v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonDeleted,
	v1alpha1.ReasonRuntimeFailed, v1alpha1.ReasonVirtualMachineDeleted, v1alpha1.ReasonVirtualMachineReplaced,
}

func (m *Metrics) countEnd(o *v1alpha1.VirtualMachineOperation) {
	if m == nil {
		return
	}
	result := "Denied"
	c := v1alpha1.ConditionCompleted.In(o.Status.Conditions)
	if c != nil && slices.Contains(results, v1alpha1.ConditionReason(c.Reason)) {
		result = c.Reason
	}
	m.ended.WithLabelValues(string(o.Spec.Type), result).Inc()
}

// observeClaim records how long the operation waited before it claimed the machine.
func (m *Metrics) observeClaim(o *v1alpha1.VirtualMachineOperation, now time.Time) {
	if m == nil {
		return
	}
	requested := o.CreationTimestamp.Time // in whole seconds
	if at, err := time.Parse(time.RFC3339Nano, o.Spec.RequestedAt); err == nil {
		requested = at
	}
	m.claimed.WithLabelValues(string(o.Spec.Type)).Observe(max(now.Sub(requested), 0).Seconds())
}

// observeUndone records how long it took to undo an operation that the holder superseded.
func (m *Metrics) observeUndone(entry *v1alpha1.UndoingOperation, holder *v1alpha1.ActiveOperation, now time.Time) {
	if m == nil || holder == nil || entry.End != v1alpha1.EndSuperseded || entry.Origin != v1alpha1.OriginOperation {
		return
	}
	m.superseded.WithLabelValues(string(entry.Type)).Observe(max(now.Sub(holder.ClaimedAt.Time), 0).Seconds())
}

var unfinishedFamily = objectmetrics.NewFamily("sallyport_operations_unfinished",
	"Number of VirtualMachineOperations that have not finished, by type and phase.",
	"When the oldest VirtualMachineOperation that has not finished was created, by type and phase", "type", "phase")

// Unfinished returns a collector of the unfinished operations, which only the leader reports.
func Unfinished(operations client.Reader, elected <-chan struct{}) prometheus.Collector {
	return &objectmetrics.Collector[*v1alpha1.VirtualMachineOperationList]{
		Cache: operations, Elected: elected, Descs: unfinishedFamily.Descs(),
		New: func() *v1alpha1.VirtualMachineOperationList { return &v1alpha1.VirtualMachineOperationList{} },
		Of: func(list *v1alpha1.VirtualMachineOperationList, report objectmetrics.Report) {
			unfinished := objectmetrics.Groups{}
			for i := range list.Items {
				if o := &list.Items[i]; !o.Finished() {
					unfinished.Add(o.CreationTimestamp.Time, string(o.Spec.Type), string(cmp.Or(o.Status.Phase, v1alpha1.OperationPending)))
				}
			}
			unfinished.Report(unfinishedFamily, report)
		},
	}
}
