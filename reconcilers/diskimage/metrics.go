package diskimage

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
)

// Metrics counts images and imports. Labels are phases, reasons and results, never a name. A nil *Metrics records
// nothing.
type Metrics struct {
	registry prometheus.Registerer
	imports  *prometheus.HistogramVec
}

// Gauges of images. A time is in seconds since 1970, that of the image that has been in the state for longest; it is
// absent if there is none.
var (
	imagesDesc = prometheus.NewDesc("sallyport_disk_images",
		"Number of VMDiskImages, by phase and by the reason of their condition Ready, such as Importing.", []string{"phase", "reason"}, nil)
	referencesDesc = prometheus.NewDesc("sallyport_disk_image_references",
		"Number of disks that use VMDiskImages.", nil, nil)
	notReadyFamily = objectmetrics.NewFamily("sallyport_disk_images_not_ready",
		"Number of VMDiskImages that are not ready, by the reason of their condition Ready.",
		"Since when the oldest VMDiskImage is not ready, by the reason of its condition Ready", "reason")
	unreferencedFamily = objectmetrics.NewFamily("sallyport_disk_images_unreferenced",
		"Number of VMDiskImages that are ready and that no disk uses, by deletion policy.",
		"Since when no disk uses the VMDiskImage that is unreferenced for longest, by deletion policy", "policy")
	terminatingFamily = objectmetrics.NewFamily("sallyport_disk_images_terminating",
		"Number of VMDiskImages that are being deleted, by the reason of their condition DeletionBlocked, or None.",
		"When the deletion of the VMDiskImage that is being deleted for longest was requested, by the reason of its condition DeletionBlocked, or None", "blocked")
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		registry: registry,
		imports: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sallyport_disk_image_import_seconds",
			Help:    "Time in seconds that attempts to import a VMDiskImage took, until its snapshot was ready, by result: Succeeded, or the reason of the failure.",
			Buckets: []float64{10, 30, 60, 300, 900, 1800, 3600, 7200, 10800},
		}, []string{"result"}),
	}
	registry.MustRegister(m.imports)
	return m
}

// register registers the gauges of the images, which only the leader reports.
func (m *Metrics) register(images client.Reader, elected <-chan struct{}) error {
	if m == nil {
		return nil
	}
	return m.registry.Register(&objectmetrics.Collector[*v1alpha1.VMDiskImageList]{
		Cache: images, Elected: elected,
		Descs: slices.Concat([]*prometheus.Desc{imagesDesc, referencesDesc}, notReadyFamily.Descs(), unreferencedFamily.Descs(), terminatingFamily.Descs()),
		New:   func() *v1alpha1.VMDiskImageList { return &v1alpha1.VMDiskImageList{} }, Of: reportImages,
	})
}

// succeeded is the result of an attempt that did not fail.
const succeeded v1alpha1.ConditionReason = "Succeeded"

func (m *Metrics) countAttempt(result v1alpha1.ConditionReason, took time.Duration) {
	if m == nil {
		return
	}
	m.imports.WithLabelValues(string(result)).Observe(took.Seconds())
}

// reportImages reports the gauges. No label has a value that users choose: reasons are those of this package.
func reportImages(list *v1alpha1.VMDiskImageList, report objectmetrics.Report) {
	type state struct{ phase, reason string }
	states, references := map[state]int{}, 0
	notReady, unreferenced, terminating := objectmetrics.Groups{}, objectmetrics.Groups{}, objectmetrics.Groups{}
	for i := range list.Items {
		image := &list.Items[i]
		s := &image.Status
		if s.References != nil {
			references += int(s.References.Count)
		}
		ready := v1alpha1.ConditionReady.In(s.Conditions)
		if ready == nil {
			continue // not reconciled yet
		}
		states[state{string(s.Phase), ready.Reason}]++
		switch {
		case !image.DeletionTimestamp.IsZero():
			blocked := "None"
			if c := v1alpha1.ConditionDeletionBlocked.In(s.Conditions); c != nil {
				blocked = c.Reason
			}
			terminating.Add(image.DeletionTimestamp.Time, blocked)
		case ready.Status != metav1.ConditionTrue:
			notReady.Add(ready.LastTransitionTime.Time, ready.Reason)
		case s.UnreferencedSince != nil:
			unreferenced.Add(s.UnreferencedSince.Time, string(image.Spec.DeletionPolicy))
		}
	}
	for of, number := range states {
		report(imagesDesc, number, of.phase, of.reason)
	}
	report(referencesDesc, references)
	notReady.Report(notReadyFamily, report)
	unreferenced.Report(unreferencedFamily, report)
	terminating.Report(terminatingFamily, report)
}
