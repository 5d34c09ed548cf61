package snapshot

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// maxAnswer limits the bytes of a response to the limit of registries for manifests.
const maxAnswer = 4 << 20

// bounded sends requests only with TLS and only to known hosts, follows no redirect, and reads at most maxAnswer
// bytes. The registry names the host for tokens (the realm of WWW-Authenticate), which receives the machine's
// credentials.
type bounded struct {
	inner http.RoundTripper
	hosts []string // the registry and its token services; with a port unless that is 443
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, protocolError("can only be used with TLS")
	}
	if host := strings.ToLower(strings.TrimSuffix(r.URL.Host, ":443")); !slices.Contains(b.hosts, host) {
		return nil, protocolError(fmt.Sprintf("names host %q, which Sallyport sends no credentials to: an administrator can list it in "+
			"runtimes.pod.snapshots.tokenHosts of the chart", host[:min(len(host), 253)]))
	}
	answer, err := b.inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		_ = answer.Body.Close() // the body is not read
		return nil, protocolError("redirects to another host, which is not followed")
	}
	answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	return answer, nil
}
