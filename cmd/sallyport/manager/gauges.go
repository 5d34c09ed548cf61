package manager

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/version"
	"sallyport.dev/sallyport/reconcilers/audit"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
	"sallyport.dev/sallyport/reconcilers/operation"
)

// addGauges registers the metrics of objects of all kinds, and that of the build.
func addGauges(mgr ctrl.Manager, registry prometheus.Registerer) error {
	cached, elected := mgr.GetClient(), mgr.Elected()
	for _, c := range []prometheus.Collector{
		&objectmetrics.Conditions{Cache: cached, Elected: elected, RuntimeOf: runtimeOf},
		operation.Unfinished(cached, elected), audit.Results(cached, elected), build(version.Get()),
	} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics of objects: %w", err)
		}
	}
	return nil
}

func runtimeOf(o runtime.Object) string {
	switch o := o.(type) {
	case *v1alpha1.VirtualMachine:
		return kindOfMachine(o)
	case *v1alpha1.VirtualDisk:
		return kindOfDisk(o)
	}
	return ""
}

func build(info version.Info) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sallyport_build_info", Help: "1, with the version and the commit of this replica's program.",
		ConstLabels: prometheus.Labels{"version": info.GitVersion, "commit": info.GitCommit, "go_version": info.GoVersion},
	}, func() float64 { return 1 })
}
