package snapshot

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// protocolError describes a response that violates the registry protocol or our limits.
type protocolError string

func (w protocolError) Error() string { return "the registry " + string(w) }

// status returns the HTTP status of an error response, or 0.
func status(err error) int {
	if answer, is := errors.AsType[*transport.Error](err); is {
		return answer.StatusCode
	}
	return 0
}

// missing are the error codes for a missing repository or manifest. The last is Harbor's.
var missing = []transport.ErrorCode{transport.ManifestUnknownErrorCode, transport.NameUnknownErrorCode, "NOT_FOUND"}

// absent reports whether the registry says that the repository or manifest does not exist. A plain 404 is not enough:
// a proxy in front of the registry can return it too.
func (a *access) absent(err error) bool {
	answer, is := errors.AsType[*transport.Error](err)
	return is && answer.StatusCode == http.StatusNotFound && answer.Request != nil &&
		strings.HasPrefix(answer.Request.URL.Path, "/v2/"+a.repository.RepositoryStr()+"/") &&
		slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool { return slices.Contains(missing, d.Code) })
}

// translate converts the error of a request that needs the right. The registry's own text is left out: the registry
// knows the credentials.
func (a *access) translate(err error, right string) error {
	if err == nil {
		return nil
	}
	registry := a.repository.RegistryStr()
	switch code := status(err); {
	case (code == http.StatusUnauthorized || code == http.StatusForbidden) && a.secret == "":
		return runtime.NewPermission(nil, "registry %s denies anonymous requests to %s %s: name a Secret with credentials in spec.runtime.pod.snapshotSecretRef",
			registry, right, a.repository.RepositoryStr())
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return runtime.NewPermission(nil, "registry %s does not accept the credentials of Secret %s for %s: they need the right to %s there",
			registry, a.secret, a.repository.RepositoryStr(), right)
	case code == http.StatusMethodNotAllowed && right == "delete":
		return runtime.NewPermission(nil, "registry %s does not allow deletion: its administrator must enable it", registry)
	case code != 0:
		return runtime.NewUnavailable(nil, "registry %s answered %d %s", registry, code, http.StatusText(code))
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return runtime.NewUnavailable(nil, "registry %s did not answer in time", registry)
	}
	if untrusted, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return runtime.NewUnavailable(untrusted, "the certificate of registry %s is not trusted", registry)
	}
	if away, is := errors.AsType[*net.OpError](err); is {
		return runtime.NewUnavailable(away, "registry %s cannot be reached", registry)
	}
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		err = protocolError(fmt.Sprintf("returned more than %d bytes", maxAnswer))
	}
	if w, is := errors.AsType[protocolError](err); is {
		return runtime.NewUnavailable(nil, "registry %s %s", registry, string(w))
	}
	return runtime.NewUnavailable(nil, "the response of registry %s is invalid", registry)
}
