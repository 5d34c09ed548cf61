// Package manager assembles the manager: the webhooks, which run in every replica, and the reconcilers, which run in the leader.
package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	virtsnapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/cmd/internal/nesting"
	"sallyport.dev/sallyport/cmd/internal/statuses"
	"sallyport.dev/sallyport/reconcilers/claim"
	machineruntime "sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/events"
	"sallyport.dev/sallyport/webhooks/record"
	webhookserver "sallyport.dev/sallyport/webhooks/server"
)

// recordsPatience is how long the manager waits at shutdown for decision records to be written.
const recordsPatience = 5 * time.Second

// NewCommand returns the command that runs the manager. Runtimes is nil except in tests, which supply their own machines.
func NewCommand(runtimes *Runtimes) *cobra.Command {
	o := &Options{}
	command := &cobra.Command{
		Use:   "manager",
		Short: "Serve the webhooks and run the reconcilers in a cluster",
		Long: "Serves the admission webhooks in every replica, and runs the reconcilers in the leader. The Helm chart sets the required\n" +
			"flags. Like kubectl, the manager reads the cluster from KUBECONFIG; in a pod it uses the service account.\n\n" +
			"On SIGTERM or Ctrl-C, the manager finishes requests in progress and exits with code 0. A second signal stops it\n" +
			"immediately. The exit code is 2 if the manager cannot start or cannot continue, for example if the leader loses its\n" +
			"lease.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctrl.SetLogger(klog.NewKlogr())
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("finding the cluster: %w", err)
			}
			defer endAtTheSecondSignal(command.Context())()
			return o.Run(command.Context(), config, runtimes)
		},
	}
	o.addFlags(command)
	return command
}

// Run serves until the context ends and the shutdown is complete, or until the leader loses its lease.
func (o *Options) Run(ctx context.Context, config *rest.Config, runtimes *Runtimes) error {
	if err := o.validate(); err != nil {
		return err
	}
	records, closeRecords, err := o.openRecords()
	if err != nil {
		return err
	}
	defer func() { _ = closeRecords() }() // what was written to it is not buffered
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	stopTraces, err := startTraces(ctx, o.ReplicaName)
	if err != nil {
		return err
	}
	defer stopTraces()
	ctx, end := context.WithCancel(ctx)
	defer end()
	restored := &restored{configuration: o.policiesConfiguration(), again: end}
	config = rest.CopyConfig(config)
	config.Wrap(nesting.Limit)
	served, err := o.newServing(config, namespace, restored.record)
	if err != nil {
		return err
	}
	locks := &claim.Locks{}
	mgr, limits, err := o.newManager(config, namespace, locks, served.server)
	if err != nil {
		return fmt.Errorf("setting up the manager: %w", err)
	}
	if err := restored.begin(ctx, mgr); err != nil {
		return err
	}
	if err := served.add(mgr); err != nil {
		return err
	}
	reads := &policyReads{configMap: types.NamespacedName{Namespace: namespace, Name: o.ShippedPolicies}}
	store, err := newFacts(mgr, config, namespace, reads)
	if err != nil {
		return err
	}
	recorder := record.NewRecorder(ctrlmetrics.Registry, records, !o.AllRecords)
	recorder.WriteEvents(events.NewWriter(mgr.GetEventRecorder(eventSource), ctrlmetrics.Registry, events.DefaultLimits))
	recorder.OnLost(func(cause error) { mgr.GetLogger().WithName("records").Error(cause, "decision records are lost") })
	recorder.OnDifference(func(policy, difference string) {
		mgr.GetLogger().WithName("policies").Error(errors.New(difference), "the program of a policy decides differently than OPA", "policy", policy)
	})
	defer recorder.Close(recordsPatience)
	served.replica.CountDenials(recorder.Denials)
	if err := o.addDrains(mgr, recorder); err != nil {
		return err
	}
	gate := decision.NewDecider(nil, store, recorder, time.Now)
	webhookserver.Register(gate, ctrlmetrics.Registry, traced(mgr.GetWebhookServer().Register), mgr.GetLogger().WithName("webhooks"))
	if err := addOpening(mgr, gate, restored, ctrlmetrics.Registry); err != nil {
		return err
	}
	if err := o.addPolicies(mgr, gate, store, reads, namespace, served.replica); err != nil {
		return err
	}
	changed := make(changes)
	if runtimes == nil {
		all, err := o.machines(mgr, gate, namespace, changed)
		if err != nil {
			return err
		}
		defer all.close()
		runtimes = all.runtimes()
	}
	halt := o.halt(restored)
	if err := o.addReconcilers(mgr, gate, runtimes.within(limits, ctrlmetrics.Registry).halted(restored.before(halt, served.replica)), changed, locks, halt); err != nil {
		return err
	}
	if err := addGauges(mgr, ctrlmetrics.Registry); err != nil {
		return err
	}
	return served.run(ctx, mgr)
}

// newManager returns the manager and the limits for calls from its reconcilers to runtimes.
func (o *Options) newManager(config *rest.Config, namespace string, locks *claim.Locks, served webhook.Server) (ctrl.Manager, machineruntime.Limits, error) {
	limits := machineruntime.Limits{Call: o.CallTimeout}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, cdiv1.AddToScheme, snapshotv1.AddToScheme, virtv1.AddToScheme, virtsnapshotv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, limits, err
		}
	}
	crds, err := charts.CRDs()
	if err != nil {
		return nil, limits, err
	}
	newClient, err := statuses.NewClient(crds)
	if err != nil {
		return nil, limits, err
	}
	options := ctrl.Options{
		Scheme:                 scheme,
		NewClient:              newClient,
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: o.cached(namespace)},
		WebhookServer:          served,
		Metrics:                metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress: o.HealthAddress,
	}
	if o.LeaderElect {
		handover, err := o.newHandover(config, locks)
		if err != nil {
			return nil, limits, fmt.Errorf("preparing leader election: %w", err)
		}
		limits.Wait = handover.Left
		options.LeaderElection, options.LeaderElectionResourceLockInterface = true, handover
		options.LeaderElectionID = leaseName // in metrics
		options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &o.LeaseDuration, &o.RenewDeadline, &o.RetryPeriod
		// The manager stops its reconcilers before it releases the lease. If that fails, the handover keeps the lease.
		options.LeaderElectionReleaseOnCancel = true
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, limits, err
	}
	return brief{mgr}, limits, nil
}
