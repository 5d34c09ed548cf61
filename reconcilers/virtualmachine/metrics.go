package virtualmachine

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// byWaiting is the index of the VirtualMachines that wait for an image: a scrape does not list all machines.
const byWaiting = "waiting"

const forImage = "image"

func waitingKeys(o client.Object) []string {
	if vm, is := o.(*v1alpha1.VirtualMachine); is && vm.Status.Phase == v1alpha1.VirtualMachineWaitingForImage {
		return []string{forImage}
	}
	return nil
}

var waitingFamily = objectmetrics.NewFamily("sallyport_machines_waiting_for_image",
	"Number of VirtualMachines in phase WaitingForImage, by the reason of their condition ImageReady.",
	"Since when the VirtualMachine in phase WaitingForImage that waits for longest waits, by the reason of its condition ImageReady", "reason")

// addMetrics registers the metrics of the machines that wait for an image, and their index.
func (r *Reconciler) addMetrics(mgr ctrl.Manager) error {
	if r.Metrics == nil {
		return nil
	}
	if err := watch.Index(mgr, &v1alpha1.VirtualMachine{}, map[string]client.IndexerFunc{byWaiting: waitingKeys}); err != nil {
		return err
	}
	if err := r.Metrics.Register(collector(mgr.GetClient(), mgr.Elected())); err != nil {
		return fmt.Errorf("registering the metrics of VirtualMachines: %w", err)
	}
	return nil
}

func collector(machines client.Reader, elected <-chan struct{}) prometheus.Collector {
	return &objectmetrics.Collector[*v1alpha1.VirtualMachineList]{
		Cache: machines, Elected: elected, Descs: waitingFamily.Descs(), Match: client.MatchingFields{byWaiting: forImage},
		New: func() *v1alpha1.VirtualMachineList { return &v1alpha1.VirtualMachineList{} }, Of: reportWaiting,
	}
}

func reportWaiting(list *v1alpha1.VirtualMachineList, report objectmetrics.Report) {
	waiting := objectmetrics.Groups{}
	for i := range list.Items {
		if c := v1alpha1.ConditionImageReady.In(list.Items[i].Status.Conditions); c != nil {
			waiting.Add(c.LastTransitionTime.Time, c.Reason)
		}
	}
	waiting.Report(waitingFamily, report)
}
