package vsphereserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// trouble is why a VSphereServer is not ready.
type trouble struct {
	status    metav1.ConditionStatus
	reason    v1alpha1.ConditionReason
	message   string // must stay the same while the trouble lasts
	log       string
	passes    bool // it may resolve by itself and is retried soon
	withdrawn bool // its credentials were removed
}

func newTrouble(reason v1alpha1.ConditionReason, format string, args ...any) *trouble {
	return &trouble{status: metav1.ConditionFalse, reason: reason, message: fmt.Sprintf(format, args...)}
}

// connection reads how to reach and log in to vCenter.
func (r *Reconciler) connection(ctx context.Context, server *v1alpha1.VSphereServer) (Connection, *trouble) {
	id := cmp.Or(server.Annotations[v1alpha1.AnnotationAcceptVCenter], server.Status.InstanceUUID)
	c := Connection{InstanceUUID: id, URL: server.Spec.URL, CABundle: server.Spec.Trust.CABundle, Thumbprint: server.Spec.Trust.Thumbprint}
	if c.CABundle != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(c.CABundle)) {
		return c, newTrouble(v1alpha1.ReasonTrustInvalid, "spec.trust.caBundle: it contains no readable PEM certificate")
	}
	key := types.NamespacedName{Namespace: r.Namespace, Name: server.Spec.CredentialsSecretRef.Name}
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		t := newTrouble(v1alpha1.ReasonSecretNotFound, "spec.credentialsSecretRef: Secret %s does not exist", key)
		t.withdrawn = true
		return c, t
	case err != nil: // it is unknown whether it exists
		t := newTrouble(v1alpha1.ReasonSecretUnreadable, "spec.credentialsSecretRef: reading Secret %s failed: %s", key, apierrors.ReasonForError(err))
		t.status, t.passes, t.log = metav1.ConditionUnknown, true, fmt.Sprintf("reading Secret %s: %v", key, err)
		return c, t
	}
	for _, k := range []string{v1alpha1.CredentialsUsernameKey, v1alpha1.CredentialsPasswordKey} {
		if len(secret.Data[k]) == 0 {
			t := newTrouble(v1alpha1.ReasonSecretIncomplete, "spec.credentialsSecretRef: Secret %s has no value for key %s", key, k)
			t.withdrawn = true
			return c, t
		}
	}
	c.Username = string(secret.Data[v1alpha1.CredentialsUsernameKey])
	c.Password = runtime.Secret(secret.Data[v1alpha1.CredentialsPasswordKey])
	return c, nil
}

func connectTrouble(server string, err error, c Connection) *trouble {
	if other, is := errors.AsType[*runtime.Other](err); is {
		return newTrouble(v1alpha1.ReasonOtherVCenter,
			"spec.url: it leads to another vCenter than before, so nothing is sent to it: its instance UUID is %s, and was %s; to use it: kubectl annotate "+
				"--overwrite vsphereservers %s %s=%s", other.Is, other.Was, server, v1alpha1.AnnotationAcceptVCenter, other.Is)
	}
	t := callTrouble(err, c)
	if runtime.IsPermission(err) {
		t.reason = v1alpha1.ReasonLoginRefused
		t.message += surrounded(c)
	}
	t.message = field(t.reason, c) + t.message
	return t
}

// surrounded names values of the Secret that begin or end with white space: the usual end of a file is taken into a Secret, too.
func surrounded(c Connection) (text string) {
	for _, v := range []struct{ key, value string }{{v1alpha1.CredentialsUsernameKey, c.Username}, {v1alpha1.CredentialsPasswordKey, string(c.Password)}} {
		if strings.TrimSpace(v.value) != v.value {
			text += fmt.Sprintf("; the value of key %s begins or ends with white space, such as a line break", v.key)
		}
	}
	return text
}

// field returns the field of the spec that must change, or leads to what must.
func field(reason v1alpha1.ConditionReason, c Connection) string {
	switch {
	case reason == v1alpha1.ReasonLoginRefused:
		return "spec.credentialsSecretRef: "
	case reason == v1alpha1.ReasonCertificateNotTrusted && c.Thumbprint != "":
		return "spec.trust.thumbprint: "
	case reason == v1alpha1.ReasonCertificateNotTrusted:
		return "spec.trust.caBundle: "
	case reason == v1alpha1.ReasonRuntimeUnavailable:
		return "spec.url: "
	}
	return ""
}

// callTrouble returns the trouble of a failed call. Denied calls are not retried soon: a few logins with a wrong
// password lock the account.
func callTrouble(err error, c Connection) *trouble {
	t := newTrouble(runtime.Reason(err), "%s", c.redact(runtime.Message(err)))
	t.log = c.redact(err.Error())
	t.passes = !runtime.IsPermission(err)
	if untrusted(err) {
		t.reason, t.passes = v1alpha1.ReasonCertificateNotTrusted, false
	}
	return t
}

func untrusted(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok
}

// redact removes the password from a text of another component, which should not contain it.
func (c *Connection) redact(text string) string {
	password := string(c.Password)
	return strings.NewReplacer(
		password, runtime.Hidden, url.QueryEscape(password), runtime.Hidden, url.PathEscape(password), runtime.Hidden, url.UserPassword("", password).String()[1:], runtime.Hidden,
	).Replace(text)
}
