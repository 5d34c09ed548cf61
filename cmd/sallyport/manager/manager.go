// Package manager assembles what runs in a cluster: the webhooks, in every replica, and the reconcilers, in the one that leads.
package manager

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/load"
	"sallyport.dev/sallyport/reconcilers/claim"
	machineruntime "sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/facts"
)

// recordsPatience is how long the end of the manager waits for decision records to be taken.
const recordsPatience = 5 * time.Second

// NewCommand makes the command that runs the manager. Runtimes are nil but for tests, which have machines of their own.
func NewCommand(runtimes Runtimes) *cobra.Command {
	o := &Options{}
	command := &cobra.Command{
		Use:   "manager",
		Short: "Serve the webhooks and run the reconcilers in a cluster",
		Long: "Serves the admission webhooks and runs the reconcilers. The cluster is found as kubectl finds it (KUBECONFIG), or from inside a pod\n" +
			"by its service account.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctrl.SetLogger(klog.NewKlogr())
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("finding the cluster: %w", err)
			}
			return o.Run(command.Context(), config, runtimes)
		},
	}
	o.addFlags(command)
	return command
}

// Run serves until the context ends, or until the lease is lost.
func (o *Options) Run(ctx context.Context, config *rest.Config, runtimes Runtimes) error {
	if err := o.validate(); err != nil {
		return err
	}
	set, err := load.Set(o.Policies)
	if err != nil {
		return err
	}
	records, err := o.openRecords()
	if err != nil {
		return err
	}
	defer records.Close()
	locks := &claim.Locks{}
	mgr, limits, err := o.newManager(config, locks)
	if err != nil {
		return fmt.Errorf("setting up the manager: %w", err)
	}
	direct, err := directClient(config, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("setting up the client for live facts: %w", err)
	}
	store := facts.NewStore(mgr.GetCache(), direct)
	if err := store.Declare(ctx, set.Reads()); err != nil {
		return err
	}
	if err := addProbes(mgr, store); err != nil {
		return fmt.Errorf("adding probes: %w", err)
	}
	recorder := webhooks.NewRecorder(ctrlmetrics.Registry, records.writer(), o.RecordsDeniedOnly)
	defer recorder.Close(recordsPatience)
	gate := webhooks.NewGate(set, store, recorder, time.Now)
	gate.Register(mgr.GetWebhookServer().Register, mgr.GetLogger().WithName("webhooks"))
	if runtimes == nil {
		connected := &vcenters{admits: gate.Admits, cached: mgr.GetClient()}
		defer connected.close()
		namespace, err := o.namespace()
		if err != nil {
			return err
		}
		if err := addVCenters(mgr, connected, namespace); err != nil {
			return err
		}
		runtimes = connected.runtime
	}
	if err := o.addReconcilers(mgr, gate, runtimes.within(limits, ctrlmetrics.Registry), locks); err != nil {
		return err
	}
	for _, p := range set.Policies() {
		mgr.GetLogger().Info("policy is active", "policy", p.Name(), "revision", p.Revision(), "mode", p.Mode)
	}
	return mgr.Start(ctx)
}

// newManager gives the manager, and the limits within which its reconcilers may call runtimes.
func (o *Options) newManager(config *rest.Config, locks *claim.Locks) (ctrl.Manager, machineruntime.Limits, error) {
	limits := machineruntime.Limits{Call: o.CallTimeout}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, limits, err
		}
	}
	options := ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		WebhookServer:          webhook.NewServer(webhook.Options{Host: o.WebhookHost, Port: o.WebhookPort, CertDir: o.CertDir}),
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
		// The manager ends its reconcilers before it releases. Where it fails to, the handover does not let it.
		options.LeaderElectionReleaseOnCancel = true
	}
	mgr, err := ctrl.NewManager(config, options)
	return mgr, limits, err
}

// directClient reads past every cache, with a rate limit of its own.
func directClient(config *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 50, 100
	rest.AddUserAgent(own, "sallyport-facts")
	return client.New(own, client.Options{Scheme: scheme})
}

// addProbes: ready means that the certificate is served and every kind that policies read is synced, leader or not.
func addProbes(mgr ctrl.Manager, store *facts.Store) error {
	if err := mgr.AddHealthzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("facts", func(*http.Request) error { return store.Synced() })
}
