package certs

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maintainOwn keeps Sallyport's own CA and a certificate of it in the Secret, both replaced in good time. There is nothing to wait for: the
// replicas serve the new certificate when it is trusted.
func maintainOwn(ctx context.Context, l *leader, secret *corev1.Secret, now time.Time) (problem, err error) {
	var all []news
	ca, faults := ownAuthority(secret.Data, now)
	found := &offer{source: &source{names: l.DNSNames}}
	if ca != nil && len(secret.Data[certKey])+len(secret.Data[privateKeyKey]) > 0 {
		if err := found.parse(secret.Data, nil, now); err != nil {
			faults = append(faults, fmt.Sprintf("the serving certificate: %v", err))
		}
	}
	if ca == nil || !now.Before(due(ca.cert)) {
		made, err := l.newAuthority(now)
		if err != nil {
			return nil, err
		}
		ca = made
		all = append(all, told(reasonAuthorityReplaced, "Rotate", "New certificate authority %s, valid until %s", ca.cert.Subject.CommonName, day(ca.cert.NotAfter)))
	}
	leaf := found.leaf
	if leaf == nil || leaf.Leaf.CheckSignatureFrom(ca.cert) != nil || !now.Before(due(leaf.Leaf)) {
		made, err := l.issue(ca, now)
		if err != nil {
			return nil, err
		}
		leaf = made
		all = append(all, told(reasonIssued, "Issue", "New serving certificate for %s, valid until %s", strings.Join(l.DNSNames, ", "), day(leaf.Leaf.NotAfter)))
	}
	if len(faults) > 0 {
		all = append([]news{{corev1.EventTypeWarning, reasonBroken, "Repair", "Replaced: " + strings.Join(faults, "; ")}}, all...)
	}
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	data[certKey], data[privateKeyKey], data[caKey], data[caPrivateKeyKey] = leaf.crt, leaf.key, encoded(ca.cert), ca.key
	if maps.EqualFunc(data, secret.Data, bytes.Equal) {
		return nil, nil
	}
	return nil, l.writeOwn(ctx, secret, data, all)
}

func (l *leader) writeOwn(ctx context.Context, secret *corev1.Secret, data map[string][]byte, all []news) error {
	secret.Data = data
	var err error
	if secret.ResourceVersion == "" {
		secret.Type = corev1.SecretTypeTLS
		err = l.writer.Create(ctx, secret, client.FieldOwner(fieldOwner))
	} else {
		err = l.writer.Update(ctx, secret, client.FieldOwner(fieldOwner))
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	for _, n := range all {
		l.tell(secret, n)
	}
	return nil
}

// ownAuthority returns the CA in the Secret, or nil, and what is wrong with it. An empty Secret has no fault.
func ownAuthority(data map[string][]byte, now time.Time) (*authority, []string) {
	if len(data[caKey])+len(data[caPrivateKeyKey]) == 0 {
		return nil, nil
	}
	all, err := cert.ParseCertsPEM(data[caKey])
	if err != nil {
		return nil, []string{fmt.Sprintf("the authority: %v", err)}
	}
	if err := certifies(all[0], now); err != nil {
		return nil, []string{fmt.Sprintf("authority %s: %v", all[0].Subject.CommonName, err)}
	}
	signer, err := parseSigner(data[caPrivateKeyKey], all[0])
	if err != nil {
		return nil, []string{fmt.Sprintf("the key of authority %s: %v", all[0].Subject.CommonName, err)}
	}
	return &authority{cert: all[0], signer: signer, key: data[caPrivateKeyKey]}, nil
}

// parseSigner returns the key, if it is that of the certificate.
func parseSigner(key []byte, of *x509.Certificate) (crypto.Signer, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, err
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, errors.New("it cannot sign")
	}
	if public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(of.PublicKey) {
		return nil, errors.New("it does not match the certificate")
	}
	return signer, nil
}
