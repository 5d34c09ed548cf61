package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
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
	"sallyport.dev/sallyport/reconcilers/virtualmachine"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/facts"
)

// recordsPatience is how long the end of the manager waits for decision records to be taken.
const recordsPatience = 5 * time.Second

// managerOptions are the flags of `sallyport manager`.
type managerOptions struct {
	webhookHost, certDir       string
	webhookPort                int
	metricsAddress, healthAddr string
	policies                   string
	records                    string
	recordsDeniedOnly          bool
}

func newManagerCommand() *cobra.Command {
	o := &managerOptions{}
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
			return o.run(command.Context(), config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.webhookHost, "webhook-host", "", "address to serve the webhooks on; empty means all")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "port to serve the webhooks on")
	flags.StringVar(&o.certDir, "cert-dir", "/var/run/sallyport/certs", "folder with tls.crt and tls.key of the webhooks; a new certificate is picked up without a restart")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", `address of the metrics; "0" turns them off`)
	flags.StringVar(&o.healthAddr, "health-probe-bind-address", ":8081", `address of /healthz and /readyz; "0" turns them off`)
	flags.StringVar(&o.policies, "policies", "", "folder of policies to use in place of the shipped ones")
	flags.StringVar(&o.records, "decision-records", "stdout", "where decision records go, a line of JSON each: stdout, off, or a file")
	flags.BoolVar(&o.recordsDeniedOnly, "decision-records-denied-only", false, "record only requests that were refused")
	return command
}

// run serves until the context ends.
func (o *managerOptions) run(ctx context.Context, config *rest.Config) error {
	set, err := loadSet(o.policies)
	if err != nil {
		return err
	}
	records, err := o.openRecords()
	if err != nil {
		return err
	}
	defer records.Close()
	mgr, err := o.newManager(config)
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
	reconciler := &virtualmachine.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the VirtualMachine reconciler: %w", err)
	}
	recorder := webhooks.NewRecorder(ctrlmetrics.Registry, records.writer(), o.recordsDeniedOnly)
	defer recorder.Close(recordsPatience)
	gate := webhooks.NewGate(set, store, recorder, time.Now)
	gate.Register(mgr.GetWebhookServer().Register, mgr.GetLogger().WithName("webhooks"))
	for _, p := range set.Policies() {
		mgr.GetLogger().Info("policy is active", "policy", p.Name(), "revision", p.Revision(), "mode", p.Mode)
	}
	return mgr.Start(ctx)
}

func (o *managerOptions) newManager(config *rest.Config) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		WebhookServer:          webhook.NewServer(webhook.Options{Host: o.webhookHost, Port: o.webhookPort, CertDir: o.certDir}),
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.healthAddr,
	})
}

// directClient reads past every cache, with a rate limit of its own.
func directClient(config *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 50, 100
	rest.AddUserAgent(own, "sallyport-facts")
	return client.New(own, client.Options{Scheme: scheme})
}

// addProbes: ready means that the certificate is served and every kind that policies read is synced.
func addProbes(mgr ctrl.Manager, store *facts.Store) error {
	if err := mgr.AddHealthzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("facts", func(*http.Request) error { return store.Synced() })
}

// recordsFile is where decision records go.
type recordsFile struct{ file *os.File }

func (o *managerOptions) openRecords() (recordsFile, error) {
	switch o.records {
	case "off":
		return recordsFile{}, nil
	case "stdout":
		return recordsFile{os.Stdout}, nil
	}
	file, err := os.OpenFile(o.records, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return recordsFile{}, fmt.Errorf("opening --decision-records: %w", err)
	}
	return recordsFile{file}, nil
}

func (r recordsFile) writer() io.Writer {
	if r.file == nil {
		return nil
	}
	return r.file
}

// Close closes a file that was opened for records.
func (r recordsFile) Close() {
	if r.file != nil && r.file != os.Stdout {
		r.file.Close()
	}
}

// loadSet compiles the policies of a folder, or the shipped ones.
func loadSet(folder string) (*catalog.Set, error) {
	objects, err := loadPolicies(folder)
	if err != nil {
		return nil, err
	}
	return catalog.Compile(objects)
}
