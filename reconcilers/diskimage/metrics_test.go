package diskimage

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
)

func TestMetrics(t *testing.T) {
	registry, elected := prometheus.NewRegistry(), make(chan struct{})
	w := newImage(t, nil)
	w.metrics = NewMetrics(registry)
	w.must(w.metrics.register(w, elected))
	told := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), strings.Fields(names)...); err != nil {
			t.Error(err)
		}
	}
	told("") // by another replica, which leads
	close(elected)
	told(references("0"))
	w.settle()
	told(references("0") + images("Pending", "Importing") + notReady(`reason="Importing"`, "1.7954352e+09"))
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed})
	w.settle()
	w.later(time.Minute)
	w.succeed()
	w.shoot(usableSnapshot)
	told(references("0") + images("Ready", "ImageReady") + since("unreferenced", "by deletion policy", `policy=""`, "1.79543526e+09"))
	if got := testutil.CollectAndCount(w.metrics.imports); got != 2 {
		t.Errorf("there are %d results of imports", got)
	}
	w.disk("elsewhere", "a", nil)
	w.disk("elsewhere", "b", nil)
	w.settle()
	told(references("2") + images("Ready", "ImageReady"))
	w.must(w.Delete(t.Context(), w.image()))
	w.settle()
	if got, err := testutil.GatherAndCount(registry, "sallyport_disk_images_terminating", "sallyport_disk_images_terminating_since_timestamp_seconds"); got != 2 || err != nil {
		t.Errorf("%d metrics of images that are being deleted, %v", got, err)
	}
}

// What a state is since is the time of the first object in it.
func TestOldest(t *testing.T) {
	at := func(minute int) *metav1.Time {
		return new(metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)))
	}
	list := &v1alpha1.VMDiskImageList{}
	for _, minute := range []int{5, 3, 7} {
		image := v1alpha1.VMDiskImage{Spec: v1alpha1.VMDiskImageSpec{DeletionPolicy: v1alpha1.VMDiskImageRetain}}
		image.Status.UnreferencedSince = at(minute)
		image.Status.Conditions = []metav1.Condition{v1alpha1.ConditionReady.Condition(metav1.ConditionTrue, v1alpha1.ReasonImageReady, 1, "")}
		list.Items = append(list.Items, image)
	}
	got := map[*prometheus.Desc]int{}
	reportImages(list, func(desc *prometheus.Desc, value int, _ ...string) { got[desc] = value })
	if !slices.Equal(values(got, unreferencedFamily), []int{3, int(at(3).Unix())}) || got[imagesDesc] != 3 {
		t.Errorf("got %v", got)
	}
}

// values returns what was reported for both metrics of a family.
func values(got map[*prometheus.Desc]int, family objectmetrics.Family) (all []int) {
	for _, desc := range family.Descs() {
		all = append(all, got[desc])
	}
	return all
}

const names = `sallyport_disk_images sallyport_disk_images_not_ready sallyport_disk_images_not_ready_since_timestamp_seconds sallyport_disk_image_references sallyport_disk_images_unreferenced
sallyport_disk_images_unreferenced_since_timestamp_seconds sallyport_disk_images_terminating sallyport_disk_images_terminating_since_timestamp_seconds`

func metric(name, help, labels, value string) string {
	return "# HELP " + name + " " + help + "\n# TYPE " + name + " gauge\n" + name + labels + " " + value + "\n"
}

func references(number string) string {
	return metric("sallyport_disk_image_references", "Number of disks that use VMDiskImages.", "", number)
}

func images(phase, reason string) string {
	return metric("sallyport_disk_images", "Number of VMDiskImages, by phase and by the reason of their condition Ready, such as Importing.",
		`{phase="`+phase+`",reason="`+reason+`"}`, "1")
}

func notReady(labels, since string) string {
	const name = "sallyport_disk_images_not_ready"
	return metric(name, "Number of VMDiskImages that are not ready, by the reason of their condition Ready.", "{"+labels+"}", "1") + metric(name+"_since_timestamp_seconds",
		"Since when the oldest VMDiskImage is not ready, by the reason of its condition Ready, in seconds since 1970.", "{"+labels+"}", since)
}

func since(state, by, labels, value string) string {
	return metric("sallyport_disk_images_"+state, "Number of VMDiskImages that are ready and that no disk uses, "+by+".", "{"+labels+"}", "1") +
		metric("sallyport_disk_images_"+state+"_since_timestamp_seconds",
			"Since when no disk uses the VMDiskImage that is unreferenced for longest, "+by+", in seconds since 1970.", "{"+labels+"}", value)
}
