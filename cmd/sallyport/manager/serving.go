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

// leavePatience is how long the end of the manager waits for its Lease to be deleted, which else runs out, and for the policies to be
// marked if it was the last.
const leavePatience = 5 * time.Second

// serving is what a replica serves the webhooks with, and how it is known to the others.
type serving struct {
	server  webhook.Server
	ending  *ending
	replica *replicas.Replica
	// selfSigned is nil if the certificate comes from files.
	selfSigned *certs.SelfSigned
}

// newServing prepares it.
func (o *Options) newServing(config *rest.Config, namespace string) (*serving, error) {
	name, err := o.replicaName()
	if err != nil {
		return nil, err
	}
	s := &serving{ending: newEnding(o.ShutdownDelay)}
	if s.replica, err = replicas.New(config, replicas.Options{
		Namespace: namespace, Name: name, UID: types.UID(o.ReplicaUID), Version: version.Get().GitVersion,
	}); err != nil {
		return nil, fmt.Errorf("naming this replica (--replica-name): %w", err)
	}
	var configure []func(*tls.Config)
	if o.CertDir == "" {
		if s.selfSigned, err = certs.NewSelfSigned(o.certificates(namespace)); err != nil {
			return nil, fmt.Errorf("preparing the certificate: %w", err)
		}
		configure = append(configure, s.selfSigned.TLS)
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

// replicaName is how this replica is known to the others.
func (o *Options) replicaName() (string, error) {
	if o.ReplicaName != "" {
		return o.ReplicaName, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("naming this replica (--replica-name would name it): %w", err)
	}
	return strings.ToLower(host), nil
}

// add adds to the manager what runs in every replica, and its probes. A replica lives as long as it answers at all when it makes
// its certificates itself: without one it waits for the one that leads, and a restart would lose what it has.
func (s *serving) add(mgr ctrl.Manager) error {
	if err := mgr.Add(s.replica); err != nil {
		return fmt.Errorf("adding the Lease of this replica: %w", err)
	}
	started := mgr.GetWebhookServer().StartedChecker()
	alive := started
	if s.selfSigned != nil {
		if err := s.selfSigned.SetupWithManager(mgr, s.replica); err != nil {
			return fmt.Errorf("setting up the certificate: %w", err)
		}
		if err := mgr.AddReadyzCheck("certificate", s.selfSigned.Ready); err != nil {
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

// run runs the manager until the context ends, and then ends it in order. A replica that ends otherwise is not signed off: its
// Lease runs out.
func (s *serving) run(ctx context.Context, mgr ctrl.Manager) error {
	if err := s.ending.run(ctx, mgr.Start); err != nil {
		return err
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
	defer cancel()
	if err := s.replica.Leave(leaving); err != nil {
		mgr.GetLogger().Error(err, "signing this replica off; its Lease runs out")
	}
	if err := s.handOff(leaving, mgr); err != nil {
		mgr.GetLogger().Error(err, "marking the RegoPolicies as ones that nobody decides by; the age of their status says so")
	}
	return nil
}

// handOff leaves the policies to the other replicas, and marks them if there is none. One that starts takes the marks off.
func (s *serving) handOff(ctx context.Context, mgr ctrl.Manager) error {
	return unattended.Mark(ctx, mgr.GetAPIReader(), mgr.GetClient().Status(), time.Now(), func(ctx context.Context) (bool, error) {
		others, err := s.replica.Others(ctx)
		return len(others) == 0, err
	})
}
