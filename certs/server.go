package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// glance is how often a replica looks again while it cannot serve what is in the Secret.
const glance = 10 * time.Second

// server is the part of every replica: it reads the Secret and serves what is in it.
type server struct {
	*Options
	served  atomic.Pointer[serving]
	trouble atomic.Pointer[error] // why API servers do not trust what is served
	metrics *metrics

	// These are set before the replica starts.
	read     func(client.Object) client.Reader
	replicas Replicas

	reported string // the hash that Reconcile has reported last
}

// getCertificate is for [tls.Config].
func (s *server) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if served := s.served.Load(); served != nil {
		return &served.Certificate, nil
	}
	return nil, s.none()
}

func (s *server) none() error {
	return fmt.Errorf("no certificate to serve yet: Secret %s does not exist or has no valid certificate", s.Secret)
}

// ready tells why API servers cannot call this replica.
func (s *server) ready() error {
	served := s.served.Load()
	if served == nil {
		return s.none()
	}
	if now := s.Now(); now.After(served.Leaf.NotAfter) {
		return fmt.Errorf("the serving certificate expired at %s", day(served.Leaf.NotAfter))
	}
	if trouble := s.trouble.Load(); trouble != nil {
		return *trouble
	}
	return nil
}

// hash is that of what is served, or empty.
func (s *server) hash() string {
	served := s.served.Load()
	if served == nil {
		return ""
	}
	return hashOf(served.Leaf)
}

// Reconcile takes what is in the Secret and reports it. Nothing takes away what is served but something better.
func (s *server) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	now := s.Now()
	secret := s.secret()
	if err := s.read(secret).Get(ctx, s.Secret, secret); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading Secret %s: %w", s.Secret, err)
	}
	configurations, err := s.readConfigurations(ctx, s.read)
	if err != nil {
		return ctrl.Result{}, err
	}
	held := s.take(s.parse(secret.Data, now), configurations, now)
	s.judge(s.served.Load(), configurations, now)
	if hash := s.hash(); hash != "" && hash != s.reported {
		if err := s.replicas.Report(ctx, hash); err != nil {
			return ctrl.Result{}, fmt.Errorf("reporting which certificate is served: %w", err)
		}
		s.reported = hash
	}
	if held != nil {
		ctrl.LoggerFrom(ctx).Info("not serving the certificate in the Secret", "secret", s.Secret, "because", held.Error())
		return ctrl.Result{RequeueAfter: glance}, nil
	}
	return ctrl.Result{}, nil
}

// take serves what is in the Secret, or tells why not.
func (s *server) take(c contents, configurations []client.Object, now time.Time) error {
	if c.leaf == nil {
		return fmt.Errorf("it has no valid serving certificate: [%s]", strings.Join(c.faults, "; "))
	}
	was := s.served.Load()
	if was != nil && hashOf(was.Leaf) == hashOf(c.leaf.Leaf) {
		return nil
	}
	if was != nil && now.Before(was.Leaf.NotAfter) {
		if err := s.trusted(c.leaf, configurations, now); err != nil {
			return err
		}
	}
	s.judge(c.leaf, configurations, now) // first, or whoever asks now would be told that it is trusted
	s.served.Store(c.leaf)
	s.metrics.show(c.leaf.Leaf, signer(c))
	return nil
}

// signer is the authority that has signed the serving certificate.
func signer(c contents) *x509.Certificate {
	for _, a := range c.authorities() {
		if c.leaf.Leaf.CheckSignatureFrom(a) == nil {
			return a
		}
	}
	return nil
}

// judge notes whether API servers trust what is served, if anything is.
func (s *server) judge(served *serving, configurations []client.Object, now time.Time) {
	var trouble *error
	if served != nil {
		if err := s.trusted(served, configurations, now); err != nil {
			trouble = &err
		}
	}
	s.trouble.Store(trouble)
}

// trusted reports whether each webhook of these configurations trusts a certificate.
func (s *server) trusted(leaf *serving, configurations []client.Object, now time.Time) error {
	for _, authorities := range bundles(configurations, now) {
		if err := leaf.valid(s.DNSNames, authorities, now); err != nil {
			return fmt.Errorf("a webhook configuration does not trust the serving certificate: %w", err)
		}
	}
	return nil
}
