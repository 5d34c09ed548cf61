package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
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
	certKey         = corev1.TLSCertKey       // the serving certificate, with intermediate certificates
	privateKeyKey   = corev1.TLSPrivateKeyKey // its key
	caKey           = "ca.crt"                // the trusted CAs; in Sallyport's own Secret the only one
	caPrivateKeyKey = "ca.key"                // the key of Sallyport's own CA
)

// source is a Secret with a certificate, and the function that maintains it.
type source struct {
	mode   Mode
	secret types.NamespacedName
	names  []string // the DNS names that the certificate must have
	// maintain updates the Secret, or makes cert-manager update it, or returns why it is not up to date. The leader calls it. It is nil if the
	// mode only reads the Secret.
	maintain func(c *Certificates, ctx context.Context, secret *corev1.Secret, now time.Time) error
	needed   bool   // a missing certificate is a problem
	remedy   string // for users, if it is missing or unusable
}

// sources returns the sources in the order of preference. Those of other modes are the last, which makes a change of the mode a rotation.
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
		own.maintain, own.needed = (*Certificates).maintainOwn, true
	}
	if o.Mode == Auto || o.Mode == CertManager {
		issued.maintain = (*Certificates).maintainIssued
	}
	all := []*source{issued, own, existing}
	if i := slices.IndexFunc(all, func(s *source) bool { return s.mode == o.Mode }); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return slices.DeleteFunc(all, func(s *source) bool { return s.secret.Name == "" })
}

// ofMode reports whether the source belongs to the mode.
func (s *source) ofMode() bool { return s.needed || s.maintain != nil }

// object returns an empty Secret with its name.
func (s *source) object() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.secret.Namespace, Name: s.secret.Name}}
}

// offer is the current content of a source.
type offer struct {
	*source
	leaf  *pair               // nil if there is none that is valid
	roots []*x509.Certificate // the CAs in the Secret
	ca    *x509.Certificate   // the one of them that certifies the leaf
	late  bool                // the source should have renewed the leaf
	wrong error               // what is wrong with a source of the mode
}

// offer parses the Secret of a source. problem is the error of maintain. A Secret without a resourceVersion does not exist.
func (o *Options) offer(s *source, secret *corev1.Secret, problem error, now time.Time) *offer {
	found := &offer{source: s}
	var fault error
	if secret.ResourceVersion == "" {
		fault = fmt.Errorf("no certificate yet: Secret %s does not exist; %s", s.secret, s.remedy)
	} else if err := found.parse(secret.Data, o.Authorities, now); err != nil {
		fault = fmt.Errorf("cannot use the certificate in Secret %s: %w; %s", s.secret, err, s.remedy)
	} else if found.late = s.mode != SelfSigned && !now.Before(part(found.leaf.Leaf, lateAt)); found.late {
		fault = fmt.Errorf("the certificate in Secret %s was not renewed and expires at %s; %s", s.secret, day(found.leaf.Leaf.NotAfter), s.remedy)
	}
	if s.needed || s.maintain != nil && (found.leaf != nil || !errors.Is(problem, errNotServed)) { // mode auto does without cert-manager
		found.wrong = oneLine(fault, problem)
	}
	return found
}

// read reads the webhook configurations and then the Secrets, which a leader maintains first. The order matters: see "Concurrent writes" in
// the package documentation.
func (c *Certificates) read(ctx context.Context, now time.Time, leads bool) (configurations []client.Object, all []*offer, err error) {
	if configurations, err = c.readConfigurations(ctx, c.live); err != nil {
		return nil, nil, err
	}
	for _, s := range c.from {
		secret := s.object()
		if err := c.live.Get(ctx, s.secret, secret); client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("reading Secret %s: %w", s.secret, err)
		}
		var problem error
		if leads && s.maintain != nil {
			if problem = s.maintain(c, ctx, secret, now); isConflict(problem) {
				return nil, nil, problem
			}
		}
		all = append(all, c.offer(s, secret, problem, now))
	}
	return configurations, all, nil
}

// parse sets leaf, roots and ca from the Secret, or returns what is wrong with it.
func (o *offer) parse(data map[string][]byte, authorities []byte, now time.Time) error {
	for _, key := range []string{certKey, privateKeyKey} {
		if len(data[key]) == 0 {
			return fmt.Errorf("key %s is missing", key)
		}
	}
	leaf, err := newPair(data[certKey], data[privateKeyKey])
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
	roots = slices.DeleteFunc(roots, func(c *x509.Certificate) bool { return !isAuthority(c, now) })
	ca, err := leaf.verify(o.names, roots, now)
	if err == nil {
		o.leaf, o.roots, o.ca = leaf, roots, ca
	}
	return err
}

// ripe returns the time at which the certificate is valid by other clocks, too.
func (o *offer) ripe() time.Time {
	from := o.leaf.Leaf.NotBefore
	return from.Add(min(fresh, o.leaf.Leaf.NotAfter.Sub(from)/10))
}

// hash identifies the certificate. It is empty if there is none.
func (o *offer) hash() string {
	if o == nil {
		return ""
	}
	sum := sha256.Sum256(o.leaf.Leaf.Raw)
	return hex.EncodeToString(sum[:])
}

// next returns the time until the next check if no watched object changes.
func next(all []*offer) time.Duration {
	wait := resync
	for _, o := range all {
		switch {
		case o.leaf != nil && o.wrong == nil:
			wait = min(wait, o.leaf.Leaf.NotAfter.Sub(o.leaf.Leaf.NotBefore)/24)
		case o.ofMode():
			wait = min(wait, patience)
		}
	}
	return wait
}

// choose returns the offer that replicas should serve, or nil: the first certificate of the mode that is not late, otherwise the first of
// the mode, otherwise one that another mode has left, for replicas that serve nothing.
func choose(all []*offer) *offer {
	for _, good := range []func(*offer) bool{
		func(o *offer) bool { return o.ofMode() && !o.late },
		(*offer).ofMode,
		func(*offer) bool { return true },
	} {
		if i := slices.IndexFunc(all, func(o *offer) bool { return o.leaf != nil && good(o) }); i >= 0 {
			return all[i]
		}
	}
	return nil
}

// faults returns what is wrong with all offers.
func faults(all []*offer) error {
	var found []error
	for _, o := range all {
		found = append(found, o.wrong)
	}
	return oneLine(found...)
}

// oneLine joins errors.
func oneLine(all ...error) error {
	err := errors.Join(all...)
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// pair is a certificate with its key: that of a server, or of an authority.
type pair struct {
	tls.Certificate
	crt, key []byte // PEM, as in a Secret
}

// newPair parses PEM. It is an error if the key is not that of the first certificate.
func newPair(crt, key []byte) (*pair, error) {
	parsed, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return nil, err
	}
	return &pair{parsed, crt, key}, nil
}

// verify returns the authority through which clients that trust roots accept the certificate for all names, or why they would not.
func (p *pair) verify(names []string, roots []*x509.Certificate, now time.Time) (ca *x509.Certificate, err error) {
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now}
	for _, c := range roots {
		options.Roots.AddCert(c)
	}
	for _, der := range p.Certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(c)
		}
	}
	for _, options.DNSName = range names {
		chains, err := p.Leaf.Verify(options)
		if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
			// Without the current time, so that the text stays the same.
			return nil, fmt.Errorf("certificate %q is valid from %s to %s", invalid.Cert.Subject.CommonName, day(invalid.Cert.NotBefore), day(invalid.Cert.NotAfter))
		}
		if err != nil {
			return nil, err
		}
		ca = chains[0][len(chains[0])-1]
	}
	return ca, nil
}

// encoded returns certificates in PEM.
func encoded(certs ...*x509.Certificate) (all []byte) {
	for _, c := range certs {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return all
}

// part returns when that part of the validity of a certificate is over.
func part(c *x509.Certificate, share float64) time.Time {
	return c.NotBefore.Add(time.Duration(share * float64(c.NotAfter.Sub(c.NotBefore))))
}

// isAuthority reports whether a certificate is that of a CA, and valid now.
func isAuthority(c *x509.Certificate, now time.Time) bool {
	return c.IsCA && c.BasicConstraintsValid && (c.KeyUsage == 0 || c.KeyUsage&x509.KeyUsageCertSign != 0) && !now.Before(c.NotBefore) && !now.After(c.NotAfter)
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }
