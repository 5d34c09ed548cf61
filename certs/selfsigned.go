package certs

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/commands"
)

// maintainOwn writes Sallyport's own CA and a certificate into the Secret, and renews both: the CA when a new certificate would outlive it.
// It need not wait for replicas, because they serve a certificate only once it is trusted.
func (c *Certificates) maintainOwn(ctx context.Context, secret *corev1.Secret, now time.Time) error {
	var events []event
	renewed := secret.DeepCopy()
	if renewed.Data == nil {
		renewed.Data = map[string][]byte{}
	}
	data, found := renewed.Data, &offer{source: &source{names: c.DNSNames}}
	ca, fault := ownAuthority(data, now)
	if ca != nil {
		if data[caKey] = encoded(ca.Leaf); len(data[certKey])+len(data[privateKeyKey]) > 0 {
			fault = found.parse(data, nil, now)
		}
	}
	if fault != nil {
		events = append(events, event{corev1.EventTypeWarning, reasonBroken, "Repair", "Replaced: " + fault.Error()})
	}
	leaf := found.leaf
	if ca == nil || now.Add(c.ServingValidity).After(ca.Leaf.NotAfter) {
		if ca, fault = c.newAuthority(now); fault != nil {
			return fault
		}
		leaf, data[caKey], data[caPrivateKeyKey] = nil, ca.crt, ca.key
		events = append(events, event{corev1.EventTypeNormal, reasonAuthorityReplaced, "Rotate",
			fmt.Sprintf("New certificate authority %s, valid until %s", ca.Leaf.Subject.CommonName, day(ca.Leaf.NotAfter))})
	}
	if leaf == nil || !now.Before(part(leaf.Leaf, renewAt)) {
		if leaf, fault = c.issue(ca, now); fault != nil {
			return fault
		}
		data[certKey], data[privateKeyKey] = leaf.crt, leaf.key
		events = append(events, event{corev1.EventTypeNormal, reasonIssued, "Issue",
			fmt.Sprintf("New serving certificate for %s, valid until %s", strings.Join(c.DNSNames, ", "), day(leaf.Leaf.NotAfter))})
	}
	if maps.EqualFunc(data, secret.Data, bytes.Equal) {
		return nil
	}
	var err error
	if secret.ResourceVersion == "" {
		renewed.Type = corev1.SecretTypeTLS
		err = c.writer.Create(ctx, renewed, client.FieldOwner(fieldOwner))
	} else {
		err = c.writer.Update(ctx, renewed, client.FieldOwner(fieldOwner))
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w; to have another one created: %s", client.ObjectKeyFromObject(secret), err,
			commands.Line("kubectl", "-n", secret.Namespace, "delete", "secret", secret.Name))
	}
	for _, e := range events {
		c.record(renewed, e)
	}
	*secret = *renewed
	return nil
}

// ownAuthority returns the CA in the Secret, nil if the Secret is empty, or an error if the CA is unusable.
func ownAuthority(data map[string][]byte, now time.Time) (*pair, error) {
	if len(data[caKey])+len(data[caPrivateKeyKey]) == 0 {
		return nil, nil
	}
	ca, err := newPair(data[caKey], data[caPrivateKeyKey])
	if err == nil && !isAuthority(ca.Leaf, now) {
		err = errors.New("the certificate is not that of an authority that is valid now")
	}
	if err != nil {
		return nil, fmt.Errorf("keys %s and %s: %w", caKey, caPrivateKeyKey, err)
	}
	return ca, nil
}

// newAuthority creates a CA for serving certificates.
func (o *Options) newAuthority(now time.Time) (*pair, error) {
	return sign(&x509.Certificate{
		// Each CA has a name of its own, because clients look for the signer of a certificate by its name.
		Subject:   pkix.Name{CommonName: "sallyport-ca-" + now.UTC().Format("20060102T150405Z")},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(o.CAValidity),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}, nil)
}

// issue creates a serving certificate.
func (o *Options) issue(ca *pair, now time.Time) (*pair, error) {
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "sallyport-webhook"}, DNSNames: o.DNSNames, NotBefore: now.Add(-backdate), NotAfter: now.Add(o.ServingValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca)
}

// sign creates a key and a certificate for it, which the CA signs, or the key itself if ca is nil.
func sign(template *x509.Certificate, ca *pair) (*pair, error) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating a key: %w", err)
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(signer)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	parent, by := template, crypto.PrivateKey(signer)
	if ca != nil {
		parent, by = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, signer.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate: %w", err)
	}
	return newPair(encoded(&x509.Certificate{Raw: der}), key)
}
