package manager

import (
	"context"
	"crypto/tls"
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

// serving is the webhook server of a replica and its identity.
type serving struct {
	server  webhook.Server
	ending  *ending
	replica *replicas.Replica
	// certificates is nil if the certificate comes from files.
	certificates *certs.Certificates
}

// newServing prepares the server.
func (o *Options) newServing(config *rest.Config, namespace string) (*serving, error) {
	name, err := o.replicaName()
	if err != nil {
		return nil, err
	}
	s := &serving{ending: newEnding(o.ShutdownDelay)}
	if s.replica, err = replicas.New(config, replicas.Options{
		Namespace: namespace, Name: name, UID: types.UID(o.ReplicaUID), Version: version.Get().GitVersion,
	}); err != nil {
		return nil, fmt.Errorf("setting up the replica (--replica-name): %w", err)
	}
	var configure []func(*tls.Config)
	if o.CertDir == "" {
		if s.certificates, err = certs.New(o.certificates(namespace)); err != nil {
			return nil, fmt.Errorf("preparing the certificate: %w", err)
		}
		configure = append(configure, s.certificates.TLS)
	}
	server, err := o.newServer(configure...)
	if err != nil {
		return nil, err
	}
	s.server = endingServer{server, s.ending}
	return s, nil
}

// certificates are the certificates of mode self-signed.
func (o *Options) certificates(namespace string) certs.Options {
	service := o.WebhookService + "." + namespace
	return certs.Options{
		Secret:   types.NamespacedName{Namespace: namespace, Name: o.CertificateSecret},
		DNSNames: []string{service + ".svc", service + ".svc.cluster.local", service},
		// The chart's own come first: see registration.
		Mutating:   []string{o.WebhookConfiguration, o.policiesConfiguration()},
		Validating: []string{o.WebhookConfiguration, o.policiesConfiguration()},
		Settle:     o.CertificateSettle,
		Poll:       o.CertificatePoll,
		Metrics:    ctrlmetrics.Registry,
	}
}

// replicaName returns the name that identifies this replica.
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

// add adds the parts that run in every replica, and its probes, to the manager. A replica that creates its own certificate is alive
// as long as it answers: without a certificate it waits for the leader, and a restart would not help.
func (s *serving) add(mgr ctrl.Manager) error {
	if err := mgr.Add(s.replica); err != nil {
		return fmt.Errorf("adding the Lease of this replica: %w", err)
	}
	started := mgr.GetWebhookServer().StartedChecker()
	alive := started
	if s.certificates != nil {
		if err := s.certificates.SetupWithManager(mgr, s.replica); err != nil {
			return fmt.Errorf("setting up the certificate: %w", err)
		}
		if err := mgr.AddReadyzCheck("certificate", s.certificates.Ready); err != nil {
			return err
		}
		alive = healthz.Ping
	}
	if err := mgr.AddHealthzCheck("webhooks", alive); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhooks", started); err != nil {
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
