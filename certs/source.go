package certs

import (
	"cmp"
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

	"sallyport.dev/sallyport/commands"
)

// The keys of a Secret. Other keys are ignored.
const (
	certKey       = corev1.TLSCertKey       // the serving certificate, with intermediate certificates
	privateKeyKey = corev1.TLSPrivateKeyKey // its key
	caKey         = "ca.crt"                // the trusted CAs
)

// source is a Secret with a certificate, and the function that maintains it.
type source struct {
	mode   Mode
	secret types.NamespacedName
	remedy string // for users, if the certificate is missing or unusable
	ofMode bool   // the mode uses it
	// maintain updates the Secret, or makes cert-manager update it, or returns why it is not up to date. The leader calls it. It is nil if the
	// mode only reads the Secret.
	maintain func(c *Certificates, ctx context.Context, secret *corev1.Secret, now time.Time) error
}

// sources returns the sources in the order of preference. Those of other modes are the last, which makes a change of the mode a rotation.
func (o *Options) sources() []*source {
	from := func(mode Mode, name, remedy string) *source {
		return &source{mode: mode, secret: types.NamespacedName{Namespace: o.Secret.Namespace, Name: name},
			remedy: remedy, ofMode: mode == o.Mode}
	}
	own := from(SelfSigned, o.Secret.Name, "the log of the leader says why it does not replace it")
	issued := from(CertManager, o.Issued, "see "+commands.Line("kubectl", "-n", o.Secret.Namespace, "describe", "certificate", o.Issued))
	existing := from(Existing, o.Existing, "write a certificate for "+o.DNSNames[0]+" to it: "+
		commands.Line("kubectl", "-n", o.Secret.Namespace, "create", "secret", "generic", o.Existing, "--type=kubernetes.io/tls",
			"--from-file=tls.crt", "--from-file=tls.key", "--from-file=ca.crt", "--dry-run=client", "-o", "yaml")+" | kubectl apply -f -")
	if o.Mode == Auto || o.Mode == SelfSigned {
		own.maintain, own.ofMode = (*Certificates).maintainOwn, true
	}
	if o.Mode == Auto || o.Mode == CertManager {
		issued.maintain, issued.ofMode = (*Certificates).maintainIssued, true
	}
	all := []*source{issued, own, existing}
	if i := slices.IndexFunc(all, func(s *source) bool { return s.mode == o.Mode }); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return slices.DeleteFunc(all, func(s *source) bool { return s.secret.Name == "" })
}

// empty returns a Secret with nothing but its name.
func (s *source) empty() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.secret.Namespace, Name: s.secret.Name}}
}

// offer is the current content of a source.
type offer struct {
	*source
	object       *corev1.Secret // without a resourceVersion if it does not exist
	*certificate                // nil if there is none that is valid
	late         bool           // the source should have renewed it
	wrong        error          // what is wrong with a source of the mode
	distrust     error          // why API servers would reject it
	settled      bool           // every API server has observed the CAs that certify it
}

// offer parses the Secret of a source. problem is the error of maintain. A Secret without a resourceVersion does not exist.
func (o *Options) offer(s *source, secret *corev1.Secret, problem error, now time.Time) *offer {
	found := &offer{source: s, object: secret}
	var fault error
	if secret.ResourceVersion == "" {
		fault = fmt.Errorf("no certificate yet: Secret %s does not exist; %s", s.secret, s.remedy)
	} else if found.certificate, fault = o.parse(secret.Data, o.DNSNames[:1], now); fault != nil {
		fault = fmt.Errorf("cannot use the certificate in Secret %s: %w; %s", s.secret, fault, s.remedy)
	} else if found.late = !now.Before(part(found.Leaf, lateAt)); found.late {
		fault = fmt.Errorf("the certificate in Secret %s was not renewed and expires at %s; %s", s.secret, day(found.Leaf.NotAfter), s.remedy)
	}
	withoutCertManager := o.Mode == Auto && found.certificate == nil && errors.Is(problem, errNotServed)
	if s.ofMode && !withoutCertManager {
		found.wrong = oneLine(fault, problem)
	}
	return found
}

// ripe returns the time at which the certificate is valid by other clocks, too.
func (o *offer) ripe() time.Time {
	from := o.Leaf.NotBefore
	return from.Add(min(fresh, o.Leaf.NotAfter.Sub(from)/10))
}

// hash identifies the certificate. It is empty if there is none.
func (o *offer) hash() string {
	if o == nil {
		return ""
	}
	return hash(o.Leaf)
}

// next returns the time until the next check if no watched object changes.
func next(all []*offer) time.Duration {
	wait := resync
	for _, o := range all {
		if o.certificate != nil {
			wait = min(wait, o.Leaf.NotAfter.Sub(o.Leaf.NotBefore)/24)
		}
		if o.ofMode && (o.certificate == nil || o.wrong != nil) {
			wait = min(wait, patience)
		}
	}
	return wait
}

// choose returns the offer that replicas should serve, or nil: the first certificate of the mode that is not late, otherwise the first of
// the mode, otherwise one that another mode has left, for replicas that serve nothing.
func choose(all []*offer) (last *offer) {
	for _, o := range all {
		switch {
		case o.certificate == nil:
		case o.ofMode && !o.late:
			return o
		case last == nil:
			last = o
		}
	}
	return last
}

// oneLine joins errors.
func oneLine(all ...error) error {
	err := errors.Join(all...)
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// certificate is a certificate with its key that clients which trust roots accept.
type certificate struct {
	tls.Certificate
	intermediates *x509.CertPool
	roots         []*x509.Certificate
	ca            *x509.Certificate // the one of them that certifies it
}

// parse returns the certificate in the data of a Secret, or why it cannot be used.
func (o *Options) parse(data map[string][]byte, names []string, now time.Time) (*certificate, error) {
	for _, key := range []string{certKey, privateKeyKey} {
		if len(data[key]) == 0 {
			return nil, fmt.Errorf("key %s is missing", key)
		}
	}
	leaf, err := tls.X509KeyPair(data[certKey], data[privateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("keys %s and %s: %w", certKey, privateKeyKey, err)
	}
	authorities := data[caKey]
	if len(authorities) == 0 {
		authorities = o.Authorities
	}
	if len(authorities) == 0 {
		return nil, fmt.Errorf("key %s is missing, and certs.caBundle has no authority instead", caKey)
	}
	roots, err := cert.ParseCertsPEM(authorities)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", caKey, err)
	}
	c := &certificate{Certificate: leaf, intermediates: x509.NewCertPool(), roots: roots}
	c.intermediates.AppendCertsFromPEM(data[certKey])
	if c.ca, err = c.verify(names, roots, now); err != nil {
		return nil, err
	}
	return c, nil
}

// verify returns the authority through which clients that trust roots accept the certificate for all names, or why they would not.
func (c *certificate) verify(names []string, roots []*x509.Certificate, now time.Time) (ca *x509.Certificate, err error) {
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: c.intermediates, CurrentTime: now}
	for _, root := range roots {
		options.Roots.AddCert(root)
	}
	for _, options.DNSName = range names {
		chains, err := c.Leaf.Verify(options)
		if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
			// Without the current time, so that the text stays the same.
			return nil, fmt.Errorf("certificate %q is valid from %s to %s",
				cmp.Or(invalid.Cert.Subject.CommonName, options.DNSName), day(invalid.Cert.NotBefore), day(invalid.Cert.NotAfter))
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

// hash identifies a certificate.
func hash(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// part returns when that part of the validity of a certificate is over.
func part(c *x509.Certificate, share float64) time.Time {
	return c.NotBefore.Add(time.Duration(share * float64(c.NotAfter.Sub(c.NotBefore))))
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }
