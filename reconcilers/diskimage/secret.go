package diskimage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

// secretAllowed reports whether CDI may send the credentials of the image to the host of its source: whether the administrator lists the
// host in SecretHosts, or the owner of the Secret in an annotation of it. If not, it says what to do. The user who created the image could
// get the Secret, but could send it to any host. Only the metadata of the Secret is read.
func (r *Reconciler) secretAllowed(ctx context.Context, v *view) (bool, error) {
	if v.Spec.SecretRef == nil {
		return true, nil
	}
	to, err := recipientOf(&v.Spec)
	if err == nil && to.in(r.SecretHosts) {
		return true, nil
	}
	v.again = pause
	waits := func(reason v1alpha1.ConditionReason, format string, args ...any) (bool, error) {
		v.imported(metav1.ConditionFalse, reason, fmt.Sprintf(format, args...))
		return false, nil
	}
	if err != nil {
		return waits(v1alpha1.ReasonSecretHostNotAllowed, "spec.url: credentials are not sent to a host that cannot be determined: create another VMDiskImage")
	}
	secret, of := &metav1.PartialObjectMetadata{}, v.Spec.SecretRef.Name
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: v.Namespace, Name: of}, secret)
	hosts := secret.Annotations[v1alpha1.AnnotationAllowedHosts]
	switch {
	case apierrors.IsNotFound(err):
		return waits(v1alpha1.ReasonSecretNotFound, "spec.secretRef: Secret %s does not exist", of)
	case apierrors.IsForbidden(err):
		return waits(v1alpha1.ReasonPermissionDenied, "spec.secretRef: Sallyport cannot read which hosts Secret %s allows in the annotation %s: an administrator can add %s to "+
			"diskImages.secretHosts, or namespace %s to rbac.imageSecrets, in the values of the chart", of, v1alpha1.AnnotationAllowedHosts, to, v.Namespace)
	case err != nil:
		return false, fmt.Errorf("reading the metadata of Secret %s: %w", of, err)
	case to.in(strings.Split(hosts, ",")):
		return true, nil
	}
	// Without --overwrite, so that the command does not replace hosts that another user adds meanwhile.
	remedy := commands.Line(append(append([]string{"kubectl", "annotate"}, commands.Object("secrets", v.Namespace, of)...),
		v1alpha1.AnnotationAllowedHosts+"="+to.String())...)
	if hosts != "" {
		remedy = commands.Line(append([]string{"kubectl", "edit"}, commands.Object("secrets", v.Namespace, of)...)...)
	}
	return waits(v1alpha1.ReasonSecretHostNotAllowed, "spec.secretRef: Secret %s does not allow that its credentials are sent to %s; to allow it, add the host to its annotation %s: %s",
		of, to, v1alpha1.AnnotationAllowedHosts, remedy)
}

// recipient is where an importer sends credentials.
type recipient struct {
	host, port string
	// standard is whether the port is that of the scheme.
	standard bool
}

func recipientOf(spec *v1alpha1.VMDiskImageSpec) (recipient, error) {
	u, err := url.Parse(spec.URL)
	switch {
	case err != nil:
		return recipient{}, fmt.Errorf("reading the host of the source: %w", err)
	case u.Hostname() == "", u.Scheme == "docker" && !strings.ContainsAny(u.Host, ".:"): // part of a repository of Docker Hub, and no host
		return recipient{}, errors.New("the source has no host")
	}
	standard := "443"
	if u.Scheme == "http" {
		standard = "80"
	}
	to := recipient{host: plainHost(u.Hostname()), port: u.Port()}
	if to.port == "" {
		to.port = standard
	}
	to.standard = to.port == standard
	return to, nil
}

func plainHost(host string) string {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// String returns the recipient as a list of hosts has it.
func (to recipient) String() string {
	if to.standard {
		return to.host
	}
	return net.JoinHostPort(to.host, to.port)
}

// in reports whether a list has the recipient. An entry is HOST, which has the port of the scheme, HOST:PORT, "*.example.org", with or
// without a port, for every name below example.org, or "*" for every host and port.
func (to recipient) in(list []string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		entry = strings.TrimSpace(entry)
		host, port, err := net.SplitHostPort(entry)
		if err != nil {
			host, port = strings.Trim(entry, "[]"), ""
		}
		if port != to.port && (port != "" || !to.standard) {
			return entry == "*"
		}
		if domain, is := strings.CutPrefix(host, "*."); is {
			return domain != "" && strings.HasSuffix(to.host, "."+plainHost(domain))
		}
		return host == "*" || host != "" && plainHost(host) == to.host
	})
}
