package manager

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"sallyport.dev/sallyport/certs"
	"sallyport.dev/sallyport/cmd/internal/version"
	"sallyport.dev/sallyport/reconcilers/policy/unattended"
	"sallyport.dev/sallyport/replicas"
)

// leavePatience is how long the manager waits at shutdown for its Lease to be deleted and, as the last replica, for the policies to
// be marked.
const leavePatience = 5 * time.Second

type serving struct {
	server       webhook.Server
	ending       *ending
	replica      *replicas.Replica
	certificates *certs.Certificates
}

func (o *Options) newServing(config *rest.Config, namespace string, restored func(context.Context) error) (*serving, error) {
	name, err := o.replicaName()
	if err != nil {
		return nil, err
	}
	s := &serving{ending: newEnding(o.ShutdownDelay)}
	if s.replica, err = replicas.New(config, replicas.Options{
		Namespace: namespace, Name: name, UID: types.UID(o.ReplicaUID), Version: version.Get().GitVersion, Restored: restored,
	}); err != nil {
		return nil, fmt.Errorf("setting up the replica (--replica-name): %w", err)
	}
	options := o.certificates(namespace)
	if s.certificates, err = certs.New(&options); err != nil {
		return nil, fmt.Errorf("preparing the certificate: %w", err)
	}
	server, err := o.newServer(s.certificates.TLS)
	if err != nil {
		return nil, err
	}
	s.server = endingServer{server, s.ending}
	return s, nil
}

// Who sets the caBundle.
const bySallyport, byInjector = "sallyport", "cainjector"

func (o *Options) certificates(namespace string) certs.Options {
	service := o.WebhookService + "." + namespace
	var authorities []byte
	if o.CABundle != bySallyport && o.CABundle != byInjector {
		authorities = []byte(o.CABundle)
	}
	return certs.Options{
		Mode:     certs.Mode(o.CertificateMode),
		Secret:   types.NamespacedName{Namespace: namespace, Name: o.CertificateSecret},
		Issued:   o.WebhookService + "-tls",
		Existing: o.ExistingSecret,
		Issuer:   o.issuer(),
		Injected: o.CABundle == byInjector, Authorities: authorities,
		DNSNames: []string{service + ".svc", service + ".svc.cluster.local", service},
		// The chart's own come first: see registration.
		Configurations: []string{o.WebhookConfiguration, o.policiesConfiguration()},
		Settle:         o.CertificateSettle, Poll: o.CertificatePoll, Metrics: ctrlmetrics.Registry,
		IssuedValidity: o.CertificateDuration,
	}
}

// issuer returns the reference that --certificate-issuer is, or nil.
func (o *Options) issuer() *certs.Issuer {
	if o.CertificateIssuer == "" {
		return nil
	}
	kind, name, found := strings.Cut(o.CertificateIssuer, "/")
	if !found {
		kind, name = "Issuer", o.CertificateIssuer
	}
	kind, group, found := strings.Cut(kind, ".")
	if !found {
		group = "cert-manager.io"
	}
	return &certs.Issuer{Kind: kind, Group: group, Name: name}
}

func (o *Options) validateCertificates() error {
	if mode := certs.Mode(o.CertificateMode); o.CABundle == byInjector && mode != certs.CertManager && mode != certs.Existing {
		return fmt.Errorf("--ca-bundle=%s requires --certificate-mode=%s or %s: cainjector does not know the manager's own certificate", byInjector, certs.CertManager, certs.Existing)
	}
	options := o.certificates("default")
	if err := options.Validate(); err != nil {
		return fmt.Errorf("checking --certificate-mode, --certificate-secret, --existing-secret and --ca-bundle: %w", err)
	}
	return nil
}

func (o *Options) replicaName() (string, error) {
	if o.ReplicaName != "" {
		return o.ReplicaName, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("reading the host name (or set --replica-name): %w", err)
	}
	return strings.ToLower(host), nil
}

// add adds the parts that run in every replica, and its probes, to the manager. A replica is alive as long as it answers: without a
// certificate it waits for the leader or another provider, and a restart would not help.
func (s *serving) add(mgr ctrl.Manager) error {
	if err := mgr.Add(s.replica); err != nil {
		return fmt.Errorf("adding the Lease of this replica: %w", err)
	}
	if err := s.certificates.SetupWithManager(mgr, s.replica); err != nil {
		return fmt.Errorf("setting up the certificate: %w", err)
	}
	if err := mgr.AddReadyzCheck("certificate", s.certificates.Ready); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("webhooks", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("ending", s.ending.ready)
}

// run runs the manager until the context ends, and then shuts it down gracefully. If the replica stops otherwise, its Lease
// expires.
func (s *serving) run(ctx context.Context, mgr ctrl.Manager) error {
	if err := s.ending.run(ctx, mgr.Start); err != nil {
		return err
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
	defer cancel()
	if err := s.replica.Leave(leaving); err != nil {
		mgr.GetLogger().Error(err, "deleting the Lease of this replica failed; the Lease expires")
	}
	if err := s.handOff(leaving, mgr); err != nil {
		mgr.GetLogger().Error(err, "marking the RegoPolicies as not enforced failed; their status goes stale")
	}
	return nil
}

// handOff marks the policies as not enforced if no other replica is left. A replica that starts removes the marks.
func (s *serving) handOff(ctx context.Context, mgr ctrl.Manager) error {
	return unattended.Mark(ctx, mgr.GetAPIReader(), mgr.GetClient().Status(), time.Now(), func(ctx context.Context) (bool, error) {
		others, err := s.replica.Others(ctx)
		return len(others) == 0, err
	})
}
