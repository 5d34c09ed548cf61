package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority signs serving certificates.
type authority struct {
	cert   *x509.Certificate
	signer crypto.Signer
	key    []byte // the signer in PEM, as it is in the Secret
}

// newAuthority makes an authority for serving certificates.
func (o *Options) newAuthority(now time.Time) (*authority, error) {
	signer, key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// A name of its own: who looks for the authority of a certificate by name finds one, not two.
		Subject:               pkix.Name{CommonName: "sallyport-ca-" + now.UTC().Format("20060102T150405Z")},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(o.CAValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	made, err := sign(template, template, signer.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("making a certificate authority: %w", err)
	}
	return &authority{cert: made, signer: signer, key: key}, nil
}

// issue makes a serving certificate, which is not valid for longer than its authority.
func (o *Options) issue(by *authority, now time.Time) (*serving, error) {
	signer, key, err := newKey()
	if err != nil {
		return nil, err
	}
	until := now.Add(o.ServingValidity)
	if until.After(by.cert.NotAfter) {
		until = by.cert.NotAfter
	}
	made, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "sallyport-webhook"},
		DNSNames:    o.DNSNames,
		NotBefore:   now.Add(-backdate),
		NotAfter:    until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, by.cert, signer.Public(), by.signer)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	return newServing(encoded(made), key)
}

func newKey() (crypto.Signer, []byte, error) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(signer)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return signer, key, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// encoded gives certificates in PEM.
func encoded(certs ...*x509.Certificate) []byte {
	var all []byte
	for _, c := range certs {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return all
}

// part is when that part of the validity of a certificate is over.
func part(c *x509.Certificate, share float64) time.Time {
	return c.NotBefore.Add(time.Duration(share * float64(c.NotAfter.Sub(c.NotBefore))))
}

// due is when to replace an authority or a certificate that Sallyport issued.
func due(c *x509.Certificate) time.Time {
	from := c.NotBefore.Add(backdate)
	return from.Add(time.Duration(renewAt * float64(c.NotAfter.Sub(from))))
}

func hashOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
