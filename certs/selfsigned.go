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
)

// maintainOwn keeps Sallyport's own CA and a certificate of it in the Secret, and replaces both in good time. It need not wait for anything,
// because replicas serve a certificate only once it is trusted.
func maintainOwn(ctx context.Context, l *leader, secret *corev1.Secret, now time.Time) (problem, err error) {
	var events []event
	ca, fault := ownAuthority(secret.Data, now)
	found := &offer{source: &source{names: l.DNSNames}}
	if ca != nil && len(secret.Data[certKey])+len(secret.Data[privateKeyKey]) > 0 {
		fault = found.parse(secret.Data, nil, now)
	}
	if fault != nil {
		events = append(events, event{corev1.EventTypeWarning, reasonBroken, "Repair", "Replaced: " + fault.Error()})
	}
	if ca == nil || !now.Before(part(ca.Leaf, renewAt)) {
		if ca, err = l.newAuthority(now); err != nil {
			return nil, err
		}
		events = append(events, event{corev1.EventTypeNormal, reasonAuthorityReplaced, "Rotate",
			fmt.Sprintf("New certificate authority %s, valid until %s", ca.Leaf.Subject.CommonName, day(ca.Leaf.NotAfter))})
	}
	leaf := found.leaf
	if leaf == nil || leaf.Leaf.CheckSignatureFrom(ca.Leaf) != nil || !now.Before(part(leaf.Leaf, renewAt)) {
		if leaf, err = l.issue(ca, now); err != nil {
			return nil, err
		}
		events = append(events, event{corev1.EventTypeNormal, reasonIssued, "Issue",
			fmt.Sprintf("New serving certificate for %s, valid until %s", strings.Join(l.DNSNames, ", "), day(leaf.Leaf.NotAfter))})
	}
	data := map[string][]byte{}
	maps.Copy(data, secret.Data)
	data[certKey], data[privateKeyKey], data[caKey], data[caPrivateKeyKey] = leaf.crt, leaf.key, encoded(ca.Leaf), ca.key
	if maps.EqualFunc(data, secret.Data, bytes.Equal) {
		return nil, nil
	}
	secret.Data = data
	if secret.ResourceVersion == "" {
		secret.Type = corev1.SecretTypeTLS
		err = l.writer.Create(ctx, secret, client.FieldOwner(fieldOwner))
	} else {
		err = l.writer.Update(ctx, secret, client.FieldOwner(fieldOwner))
	}
	if err != nil {
		return nil, fmt.Errorf("writing Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	for _, e := range events {
		l.tell(secret, e)
	}
	return nil, nil
}

// ownAuthority returns the CA in the Secret, or nil and what is wrong with it. There is nothing wrong with an empty Secret.
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

// issue creates a serving certificate, which does not outlive its CA.
func (o *Options) issue(ca *pair, now time.Time) (*pair, error) {
	until := now.Add(o.ServingValidity)
	if until.After(ca.Leaf.NotAfter) {
		until = ca.Leaf.NotAfter
	}
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "sallyport-webhook"}, DNSNames: o.DNSNames, NotBefore: now.Add(-backdate), NotAfter: until,
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
