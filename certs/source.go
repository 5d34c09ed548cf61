package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/commands"
)

// The keys of a Secret. Other keys are ignored.
const (
	certKey         = corev1.TLSCertKey       // the serving certificate, with the intermediate ones
	privateKeyKey   = corev1.TLSPrivateKeyKey // the key of the serving certificate
	caKey           = "ca.crt"                // the authorities to be trusted; in the Secret of Sallyport's own CA the one that signs
	caPrivateKeyKey = "ca.key"                // the key of Sallyport's own CA
)

// source is where a certificate comes from: a Secret, and whoever maintains it.
type source struct {
	mode   Mode
	secret types.NamespacedName
	// names are the DNS names that the certificate must have.
	names []string
	// maintain is called by the leader. It updates the Secret, or has somebody else do that and returns why that one cannot. It is nil if
	// the mode only uses what there is.
	maintain func(ctx context.Context, l *leader, secret *corev1.Secret, now time.Time) (problem, err error)
	// needed says that it is a problem if there is no certificate.
	needed bool
	// remedy is what people can do then.
	remedy string
}

// sources are those of the mode, the preferred one first. Those of other modes come after it, so that another mode is a rotation.
func (o *Options) sources() []*source {
	from := func(mode Mode, name, remedy string) *source {
		return &source{mode: mode, secret: types.NamespacedName{Namespace: o.Secret.Namespace, Name: name}, names: o.DNSNames[:1],
			needed: mode == o.Mode, remedy: remedy}
	}
	own := from(SelfSigned, o.Secret.Name, "the log of the leader says why it does not replace it")
	issued := from(CertManager, o.Issued, "see "+commands.Line("kubectl", "-n", o.Secret.Namespace, "describe", "certificate", o.Issued))
	existing := from(Existing, o.Existing, "write a certificate for "+o.DNSNames[0]+" to it: "+
		commands.Line("kubectl", "-n", o.Secret.Namespace, "create", "secret", "generic", o.Existing, "--type=kubernetes.io/tls",
			"--from-file=tls.crt", "--from-file=tls.key", "--from-file=ca.crt", "--dry-run=client", "-o", "yaml")+" | kubectl apply -f -")
	own.names = o.DNSNames
	if o.Mode == Auto || o.Mode == SelfSigned {
		own.maintain, own.needed = maintainOwn, true
	}
	if o.Mode == Auto || o.Mode == CertManager {
		issued.maintain = maintainIssued
	}
	all := []*source{issued, own, existing}
	if i := slices.IndexFunc(all, func(s *source) bool { return s.mode == o.Mode }); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	if o.Existing == "" {
		all = slices.DeleteFunc(all, func(s *source) bool { return s == existing })
	}
	return all
}

// offer is what a source has at the moment.
type offer struct {
	*source
	leaf    *serving            // nil if there is none that is valid
	roots   []*x509.Certificate // the authorities in the Secret
	ca      *x509.Certificate   // the one of them that certifies the leaf
	fault   error               // why there is no leaf, or why there should be another one by now
	problem error               // why whoever maintains the Secret cannot; only the leader knows
}

// ofMode reports whether the source belongs to the mode; one of another mode is only used as long as there is nothing else.
func (s *source) ofMode() bool { return s.needed || s.maintain != nil }

// read returns the Secret of the source; one without a resourceVersion does not exist.
func (s *source) read(ctx context.Context, reader client.Reader) (*corev1.Secret, error) {
	secret := s.object()
	if err := reader.Get(ctx, s.secret, secret); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", s.secret, err)
	}
	return secret, nil
}

// object returns the Secret with nothing but its name.
func (s *source) object() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.secret.Namespace, Name: s.secret.Name}}
}

// offer parses the Secret.
func (o *Options) offer(s *source, secret *corev1.Secret, now time.Time) *offer {
	found := &offer{source: s}
	if secret.ResourceVersion == "" {
		found.fault = fmt.Errorf("no certificate yet: Secret %s does not exist; %s", s.secret, s.remedy)
		return found
	}
	if err := found.parse(secret.Data, o.Authorities, now); err != nil {
		found.fault = fmt.Errorf("cannot use the certificate in Secret %s: %w; %s", s.secret, err, s.remedy)
		return found
	}
	if s.mode != SelfSigned && !now.Before(part(found.leaf.Leaf, lateAt)) {
		found.fault = fmt.Errorf("the certificate in Secret %s was not renewed and expires at %s; %s", s.secret, day(found.leaf.Leaf.NotAfter), s.remedy)
	}
	return found
}

// parse takes certificate and authorities from the Secret, or says what is wrong.
func (o *offer) parse(data map[string][]byte, authorities []byte, now time.Time) error {
	for _, key := range []string{certKey, privateKeyKey} {
		if len(data[key]) == 0 {
			return fmt.Errorf("key %s is missing", key)
		}
	}
	leaf, err := newServing(data[certKey], data[privateKeyKey])
	if err != nil {
		return fmt.Errorf("keys %s and %s: %w", certKey, privateKeyKey, err)
	}
	if len(data[caKey]) > 0 {
		authorities = data[caKey]
	}
	if len(authorities) == 0 {
		return fmt.Errorf("key %s is missing, and certs.caBundle has no authority instead", caKey)
	}
	roots, err := cert.ParseCertsPEM(authorities)
	if err != nil {
		return fmt.Errorf("key %s: %w", caKey, err)
	}
	roots = slices.DeleteFunc(roots, func(c *x509.Certificate) bool { return certifies(c, now) != nil })
	if err := leaf.valid(o.names, roots, now); err != nil {
		return err
	}
	chains, err := leaf.chains(roots, now)
	if err != nil {
		return err
	}
	o.leaf, o.roots, o.ca = leaf, roots, chains[0][len(chains[0])-1]
	return nil
}

// ripe is when other clocks have reached the time from which the certificate is valid.
func (o *offer) ripe() time.Time {
	from := o.leaf.Leaf.NotBefore
	return from.Add(min(fresh, o.leaf.Leaf.NotAfter.Sub(from)/10))
}

// next is how long nothing needs to be checked while nothing changes.
func (o *offer) next() time.Duration {
	return min(resync, o.leaf.Leaf.NotAfter.Sub(o.leaf.Leaf.NotBefore)/24)
}

// choose returns the offer that replicas should serve, or nil: the first one of the mode without a fault, else the first one of the mode
// with a certificate, else what another mode has left.
func choose(all []*offer) *offer {
	for _, good := range []func(*offer) bool{
		func(o *offer) bool { return o.leaf != nil && o.ofMode() && o.fault == nil },
		func(o *offer) bool { return o.leaf != nil && o.ofMode() },
		func(o *offer) bool { return o.leaf != nil },
	} {
		if i := slices.IndexFunc(all, good); i >= 0 {
			return all[i]
		}
	}
	return nil
}

// wrong says what is wrong with an offer that is needed, nil if nothing is.
func (o *offer) wrong() error {
	switch {
	case errors.Is(o.problem, errNotServed) && !o.needed && o.leaf == nil:
		return nil // in mode auto, where the cluster has no cert-manager
	case o.problem != nil, o.fault != nil && o.ofMode():
		return oneLine([]error{o.fault, o.problem})
	}
	return nil
}

// faults are those of all offers.
func faults(all []*offer) error {
	var found []error
	for _, o := range all {
		found = append(found, o.wrong())
	}
	return oneLine(found)
}

// oneLine joins errors.
func oneLine(all []error) error {
	var said []string
	for _, err := range all {
		if err != nil {
			said = append(said, err.Error())
		}
	}
	if said == nil {
		return nil
	}
	return errors.New(strings.Join(said, "; "))
}

// serving is a serving certificate with its key.
type serving struct {
	tls.Certificate
	crt, key []byte // as they are in the Secret
}

func newServing(crt, key []byte) (*serving, error) {
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return nil, err
	}
	return &serving{Certificate: pair, crt: crt, key: key}, nil
}

// valid says why clients that trust these authorities would reject the certificate.
func (s *serving) valid(names []string, trusted []*x509.Certificate, now time.Time) error {
	switch {
	case now.After(s.Leaf.NotAfter):
		return fmt.Errorf("the certificate expired at %s", day(s.Leaf.NotAfter))
	case now.Before(s.Leaf.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", day(s.Leaf.NotBefore))
	}
	for _, name := range names {
		if s.Leaf.VerifyHostname(name) != nil {
			return fmt.Errorf("the certificate is not valid for %s, only for [%s]", name, strings.Join(s.Leaf.DNSNames, ", "))
		}
	}
	if _, err := s.chains(trusted, now); err != nil {
		return fmt.Errorf("no trusted authority signed the certificate: %w", err)
	}
	return nil
}

func (s *serving) chains(trusted []*x509.Certificate, now time.Time) ([][]*x509.Certificate, error) {
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, c := range trusted {
		options.Roots.AddCert(c)
	}
	for _, der := range s.Certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(c)
		}
	}
	return s.Leaf.Verify(options)
}

// certifies says why a certificate is not that of an authority, now.
func certifies(c *x509.Certificate, now time.Time) error {
	switch {
	case !c.IsCA || !c.BasicConstraintsValid || c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("it is not a certificate authority")
	case now.After(c.NotAfter):
		return fmt.Errorf("it expired at %s", day(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Errorf("it is not valid before %s", day(c.NotBefore))
	}
	return nil
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }
