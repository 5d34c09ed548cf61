package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Issuer names the Issuer or ClusterIssuer of certs.issuerRef, which Sallyport does not change.
type Issuer = cmmeta.IssuerReference

// errNotServed means that the cluster has no cert-manager.
var errNotServed = errors.New("cert-manager.io/v1 is not served: install cert-manager, or set certs.mode to self-signed")

// issuedCAValidity is the validity of the CA that signs cert-manager's certificates. It is renewed early enough to outlive each certificate.
const issuedCAValidity, maxIssuedValidity = 10 * year, year

// maintainIssued writes the Certificate and, without certs.issuerRef, its Issuers, and returns why cert-manager has not issued it.
func (c *Certificates) maintainIssued(ctx context.Context, secret *corev1.Secret, _ time.Time) error {
	var all []error
	if c.Issuer != nil {
		all = append(all, c.checkIssuer(ctx, secret.Namespace))
	}
	for _, o := range c.issued(secret) {
		err := c.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(fieldOwner)) // also reads the status into o
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			return errNotServed
		case apierrors.IsConflict(err):
			return oneLine(fmt.Errorf("%s has another manager: delete it, or resolve the conflict: %w", described(o), err))
		case err != nil:
			return fmt.Errorf("writing %s: %w", described(o), err)
		}
		all = append(all, unready(o))
	}
	return oneLine(all...)
}

// issued returns the objects to write. The last one is the Certificate, whose Secret has its name.
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
	if c.Issuer != nil {
		return []*unstructured.Unstructured{leaf}
	}
	return []*unstructured.Unstructured{
		object(certmanagerv1.IssuerKind, root, &certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}),
		certificate(ca, ours(root), certmanagerv1.CertificateSpec{
			IsCA: true, CommonName: ca, Duration: &metav1.Duration{Duration: issuedCAValidity}, RenewBefore: &metav1.Duration{Duration: 2*c.IssuedValidity + day24},
		}),
		object(certmanagerv1.IssuerKind, ca, &certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: ca}}), leaf,
	}
}

// checkIssuer returns why the Issuer of certs.issuerRef cannot issue. It does not check issuers of other API groups than cert-manager's.
func (c *Certificates) checkIssuer(ctx context.Context, namespace string) error {
	if cmp.Or(c.Issuer.Group, certmanagerv1.SchemeGroupVersion.Group) != certmanagerv1.SchemeGroupVersion.Group {
		return nil
	}
	issuer := &unstructured.Unstructured{}
	issuer.SetGroupVersionKind(certmanagerv1.SchemeGroupVersion.WithKind(cmp.Or(c.Issuer.Kind, certmanagerv1.IssuerKind)))
	issuer.SetName(c.Issuer.Name)
	if issuer.GetKind() == certmanagerv1.IssuerKind {
		issuer.SetNamespace(namespace)
	}
	err := c.live.Get(ctx, client.ObjectKeyFromObject(issuer), issuer)
	switch {
	case meta.IsNoMatchError(err):
		return errNotServed
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s of certs.issuerRef does not exist: create it, or correct certs.issuerRef", described(issuer))
	case err != nil:
		return fmt.Errorf("reading %s: %w", described(issuer), err)
	}
	return unready(issuer)
}

// unready returns why an object of cert-manager is not ready, with the messages of its conditions.
func unready(u *unstructured.Unstructured) error {
	status := struct {
		Status certmanagerv1.CertificateStatus `json:"status"`
	}{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &status); err != nil {
		return fmt.Errorf("reading the status of %s: %w", described(u), err)
	}
	said := ""
	for _, c := range status.Status.Conditions {
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
	if n := ptr.Deref(status.Status.FailedIssuanceAttempts, 0); n > 0 {
		said += fmt.Sprintf("; %d failed attempts", n)
	}
	return fmt.Errorf("%s is not ready%s", described(u), said)
}

func described(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")
}
