package certs

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The keys of the Secret. Other keys in it are left alone.
const (
	// certKey has the serving certificate.
	certKey = corev1.TLSCertKey
	// privateKeyKey has the key of the serving certificate.
	privateKeyKey = corev1.TLSPrivateKeyKey
	// caKey has the authorities to be trusted: the one that signs, then older ones that a replica may still need.
	caKey = "ca.crt"
	// caPrivateKeyKey has the key of the authority that signs.
	caPrivateKeyKey = "ca.key"
)

// maxTrusted bounds the authorities that are kept trusted, whatever goes wrong how often.
const maxTrusted = 8

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

// valid tells why clients that trust these authorities would not take the certificate.
func (s *serving) valid(names []string, trusted []*x509.Certificate, now time.Time) error {
	roots := x509.NewCertPool()
	for _, c := range trusted {
		roots.AddCert(c)
	}
	for _, name := range names {
		options := x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if _, err := s.Leaf.Verify(options); err != nil {
			return err
		}
	}
	return nil
}

// contents are what of the Secret is good.
type contents struct {
	ca      *authority          // the authority that signs, or nil
	trusted []*x509.Certificate // the other authorities
	leaf    *serving            // nil if it is none that a client would take
	expired bool                // the serving certificate is broken by time, so that nobody can serve it
	faults  []string            // what is broken
}

// parse takes from the Secret what is good.
func (o *Options) parse(data map[string][]byte, now time.Time) contents {
	c := contents{}
	c.parseAuthorities(data[caKey], data[caPrivateKeyKey], now)
	if len(data[certKey])+len(data[privateKeyKey]) == 0 { // which is not broken, but not there yet
		return c
	}
	leaf, err := newServing(data[certKey], data[privateKeyKey])
	if err == nil {
		err = leaf.valid(o.DNSNames, c.authorities(), now)
	}
	if err != nil {
		c.fault("the serving certificate: %w", err)
		c.expired = leaf != nil && (now.After(leaf.Leaf.NotAfter) || now.Before(leaf.Leaf.NotBefore))
		return c
	}
	c.leaf = leaf
	return c
}

func (c *contents) parseAuthorities(bundle, key []byte, now time.Time) {
	if len(bundle)+len(key) == 0 {
		return
	}
	all, err := cert.ParseCertsPEM(bundle) // with an error: those before it
	if err != nil {
		c.fault("the authorities: %w", err)
	}
	signer, err := parseSigner(key)
	if err != nil {
		c.fault("the key of the authority: %w", err)
	}
	for i, found := range all {
		if err := certifies(found, now); err != nil {
			c.fault("authority %s: %w", found.Subject.CommonName, err)
			continue
		}
		if i == 0 && signer != nil {
			if signs(signer, found) {
				c.ca = &authority{cert: found, signer: signer, key: key}
				continue
			}
			c.fault("the key of the authority: it does not match %s", found.Subject.CommonName)
		}
		c.trust(found)
	}
}

func (c *contents) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...).Error())
}

func parseSigner(key []byte) (crypto.Signer, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, err
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, errors.New("it cannot sign")
	}
	return signer, nil
}

func signs(signer crypto.Signer, c *x509.Certificate) bool {
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(c.PublicKey)
}

// certifies tells why a certificate is not one of an authority, now.
func certifies(c *x509.Certificate, now time.Time) error {
	switch {
	case !c.IsCA || !c.BasicConstraintsValid || c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("it is not a certificate authority")
	case now.After(c.NotAfter):
		return fmt.Errorf("it expired at %s", c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("it is not valid before %s", c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// trust adds authorities to those that are trusted beside the one that signs.
func (c *contents) trust(more ...*x509.Certificate) {
	for _, m := range more {
		if len(c.trusted) < maxTrusted && !slices.ContainsFunc(c.authorities(), m.Equal) {
			c.trusted = append(c.trusted, m)
		}
	}
}

// replace puts an authority in the place of the one that signs, which stays trusted.
func (c *contents) replace(by *authority) {
	was := c.authorities()
	c.ca, c.trusted = by, nil
	c.trust(was...)
}

// authorities are all that are to be trusted.
func (c *contents) authorities() []*x509.Certificate {
	if c.ca == nil {
		return slices.Clone(c.trusted)
	}
	return append([]*x509.Certificate{c.ca.cert}, c.trusted...)
}

// bundle is what the webhook configurations are to have.
func (c *contents) bundle() []byte { return encoded(c.authorities()...) }

// current reports whether the authority that signs has signed the serving certificate.
func (c *contents) current() bool {
	return c.ca != nil && c.leaf != nil && c.leaf.Leaf.CheckSignatureFrom(c.ca.cert) == nil
}

// secret gives the Secret, with nothing but its name.
func (o *Options) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Secret.Namespace, Name: o.Secret.Name}}
}

// within gives the data of a Secret with these contents. Where a key is missing the Secret has an empty one, as its type wants.
func (c *contents) within(data map[string][]byte) map[string][]byte {
	filled := maps.Clone(data)
	if filled == nil {
		filled = map[string][]byte{}
	}
	leaf, ca := c.leaf, c.ca
	if leaf == nil {
		leaf = &serving{}
	}
	if ca == nil {
		ca = &authority{}
	}
	filled[certKey], filled[privateKeyKey] = orEmpty(leaf.crt), orEmpty(leaf.key)
	filled[caKey], filled[caPrivateKeyKey] = orEmpty(c.bundle()), orEmpty(ca.key)
	return filled
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func sameData(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }
