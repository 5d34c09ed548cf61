package hibernation

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Recorder reports the progress of moves by events on the VirtualMachine, and the duration of steps in a histogram.
type Recorder struct {
	events events.EventRecorder
	steps  *prometheus.HistogramVec
}

// NewRecorder registers the metric.
func NewRecorder(recorder events.EventRecorder, registry prometheus.Registerer) *Recorder {
	t := &Recorder{events: recorder, steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sallyport_migration_step_duration_seconds",
		Help:    "Duration of the steps of moves by hibernation in seconds, by step.",
		Buckets: []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600},
	}, []string{"step"})}
	registry.MustRegister(t.steps)
	return t
}

// Moved records that a move has changed from one step to another. before is nil at the start, after at the end.
func (t *Recorder) Moved(vm *v1alpha1.VirtualMachine, before, after *v1alpha1.Migration, now time.Time) {
	changed := before == nil || after == nil || before.ID != after.ID || before.Step != after.Step
	if before != nil && changed {
		t.steps.WithLabelValues(string(before.Step)).Observe(now.Sub(before.Since.Time).Seconds())
	}
	if after == nil || !changed {
		return
	}
	t.events.Eventf(vm, nil, corev1.EventTypeNormal, string(v1alpha1.ReasonMigrating), string(after.Step), "%s", stepMessage(after))
}

func stepMessage(m *v1alpha1.Migration) string {
	switch m.Step {
	case v1alpha1.MigrationHibernate:
		return fmt.Sprintf("move %s started: hibernating the machine on node %s", m.ID, m.Was.NodeName)
	case v1alpha1.MigrationWake:
		return fmt.Sprintf("move %s is rolled back: waking the machine on node %s", m.ID, m.Was.NodeName)
	case v1alpha1.MigrationRelease:
		return fmt.Sprintf("move %s: the registry has the snapshot (%s); removing the machine from node %s", m.ID, m.Digest, m.Was.NodeName)
	case v1alpha1.MigrationRestore:
		return fmt.Sprintf("move %s: restoring the machine from its snapshot", m.ID)
	}
	return fmt.Sprintf("move %s finished: the machine is live; removing its snapshot", m.ID)
}
