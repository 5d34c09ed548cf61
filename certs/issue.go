package certs

import (
	"context"
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

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/commands"
)

// maintainOwn replaces the certificate in Sallyport's own Secret if it is due or unusable. It need not wait for replicas, because they serve
// a certificate only once it is trusted.
func (c *Certificates) maintainOwn(ctx context.Context, secret *corev1.Secret, now time.Time) error {
	found, fault := c.parse(secret.Data, c.DNSNames, now)
	if fault == nil && now.Before(part(found.Leaf, renewAt)) {
		return nil
	}
	renewed := secret.DeepCopy()
	data, err := c.issue(now)
	if err != nil {
		return fmt.Errorf("creating a certificate: %w", err)
	}
	maps.DeleteFunc(renewed.Data, func(key string, _ []byte) bool { return data[key] != nil || key == "ca.key" }) // earlier releases stored a CA's key
	maps.Copy(data, renewed.Data)
	renewed.Data = data
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
	if fault != nil && len(secret.Data[certKey])+len(secret.Data[privateKeyKey])+len(secret.Data[caKey]) > 0 {
		c.events.Eventf(renewed, nil, corev1.EventTypeWarning, reasonBroken, "Repair", "Replaced: %v", fault)
	}
	c.events.Eventf(renewed, nil, corev1.EventTypeNormal, reasonIssued, "Issue", "New serving certificate for %s, valid until %s",
		strings.Join(c.DNSNames, ", "), day(now.Add(c.OwnValidity)))
	*secret = *renewed
	return nil
}

// issue creates a certificate that is its own authority, as the data of a Secret.
func (o *Options) issue(now time.Time) (map[string][]byte, error) {
	template := &x509.Certificate{
		// Each has a name of its own, because clients look for the signer of a certificate by its name.
		Subject:  pkix.Name{CommonName: "sallyport-webhook-" + now.UTC().Format("20060102T150405Z")},
		DNSNames: o.DNSNames, NotBefore: now.Add(-backdate), NotAfter: now.Add(o.OwnValidity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// Earlier releases, after a rollback, keep only CAs in the caBundle while replicas of this one serve it.
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(signer)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	crt := encoded(&x509.Certificate{Raw: der})
	return map[string][]byte{certKey: crt, privateKeyKey: key, caKey: crt}, err
}

// Issuer names the Issuer or ClusterIssuer of certs.issuerRef, which Sallyport does not change.
type Issuer = cmmeta.IssuerReference

// errNotServed means that the cluster has no cert-manager.
var errNotServed = errors.New("cert-manager.io/v1 is not served: install cert-manager, or set certs.mode to self-signed")

// maintainIssued writes the Certificate and, without certs.issuerRef, its Issuers, and returns why cert-manager has not issued it.
func (c *Certificates) maintainIssued(ctx context.Context, secret *corev1.Secret, _ time.Time) error {
	var all []error
	for _, o := range c.issued(secret) {
		var err error
		given := o.Object["spec"] == nil
		if given {
			err = c.live.Get(ctx, client.ObjectKeyFromObject(o), o)
		} else {
			err = c.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(fieldOwner)) // also reads the status into o
		}
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err) && !given:
			return errNotServed
		case apierrors.IsNotFound(err):
			err = fmt.Errorf("%s of certs.issuerRef does not exist: create it, or correct certs.issuerRef", described(o))
		case apierrors.IsConflict(err):
			err = fmt.Errorf("%s has another manager: delete it, or resolve the conflict: %w", described(o), err)
		case err != nil:
			err = fmt.Errorf("reading or writing %s: %w", described(o), err)
		default:
			err = unready(o)
		}
		all = append(all, err)
	}
	return oneLine(all...)
}

// issued returns the objects to write. The last one is the Certificate, whose Secret has its name. An object without a spec is the issuer of
// certs.issuerRef, and only read.
func (c *Certificates) issued(secret *corev1.Secret) []*unstructured.Unstructured {
	name, ca, root := secret.Name, secret.Name+"-ca", secret.Name+"-root"
	object := func(kind, name string, spec any) *unstructured.Unstructured {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
		utilruntime.Must(err)
		u := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
		u.SetGroupVersionKind(certmanagerv1.SchemeGroupVersion.WithKind(kind))
		u.SetNamespace(secret.Namespace)
		u.SetName(name)
		u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "sallyport"})
		return u
	}
	certificate := func(name string, issuer Issuer, spec certmanagerv1.CertificateSpec) *unstructured.Unstructured {
		spec.SecretName, spec.IssuerRef, spec.RevisionHistoryLimit = name, issuer, ptr.To[int32](1)
		spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm, Size: 256, RotationPolicy: certmanagerv1.RotationPolicyAlways}
		return object(certmanagerv1.CertificateKind, name, &spec)
	}
	ours := func(name string) Issuer {
		return Issuer{Group: certmanagerv1.SchemeGroupVersion.Group, Kind: certmanagerv1.IssuerKind, Name: name}
	}
	leaf := certificate(name, ptr.Deref(c.Issuer, ours(ca)), certmanagerv1.CertificateSpec{
		DNSNames: c.DNSNames, Duration: &metav1.Duration{Duration: c.IssuedValidity},
		Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth},
	})
	switch {
	case c.Issuer == nil:
		return []*unstructured.Unstructured{
			object(certmanagerv1.IssuerKind, root, &certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}),
			certificate(ca, ours(root), certmanagerv1.CertificateSpec{ // renewed early enough to outlive each certificate
				IsCA: true, CommonName: ca, Duration: &metav1.Duration{Duration: 10 * year}, RenewBefore: &metav1.Duration{Duration: 2*c.IssuedValidity + day24},
			}),
			object(certmanagerv1.IssuerKind, ca, &certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: ca}}), leaf,
		}
	case c.Issuer.Group != certmanagerv1.SchemeGroupVersion.Group: // not a kind of cert-manager, so its state is unknown
		return []*unstructured.Unstructured{leaf}
	}
	issuer := &unstructured.Unstructured{}
	issuer.SetGroupVersionKind(certmanagerv1.SchemeGroupVersion.WithKind(c.Issuer.Kind))
	issuer.SetName(c.Issuer.Name)
	if c.Issuer.Kind == certmanagerv1.IssuerKind {
		issuer.SetNamespace(secret.Namespace)
	}
	return []*unstructured.Unstructured{issuer, leaf}
}

// unready returns why an object of cert-manager is not ready, with the messages of its conditions.
func unready(u *unstructured.Unstructured) error {
	certificate := &certmanagerv1.Certificate{} // an Issuer has the same conditions
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, certificate); err != nil {
		return fmt.Errorf("reading the status of %s: %w", described(u), err)
	}
	said := ""
	for _, c := range certificate.Status.Conditions {
		switch {
		case c.Type == certmanagerv1.CertificateConditionReady && c.Status == cmmeta.ConditionTrue:
			return nil
		case c.Type == certmanagerv1.CertificateConditionReady || c.Type == certmanagerv1.CertificateConditionIssuing && c.Status == cmmeta.ConditionFalse:
			said += fmt.Sprintf("; %s %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	if said == "" {
		said = "; it has no condition: is the controller of cert-manager running?"
	}
	if n := ptr.Deref(certificate.Status.FailedIssuanceAttempts, 0); n > 0 {
		said += fmt.Sprintf("; %d failed attempts", n)
	}
	return fmt.Errorf("%s is not ready%s", described(u), said)
}

func described(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")
}
