package snapshot

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// maxAnswer is how many bytes an answer may have: what registries take as a manifest.
const maxAnswer = 4 << 20

// bounded sends nothing without TLS and nothing to other hosts, follows no redirect, and reads no more than maxAnswer. A registry names the
// host that tokens come from (the realm of WWW-Authenticate), which is sent the credentials of the machine.
type bounded struct {
	inner http.RoundTripper
	hosts []string // of the registry, and of the services whose tokens it takes; with a port unless that is 443
}

// RoundTrip makes the request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, wrong("can only be used with TLS")
	}
	if host := strings.ToLower(strings.TrimSuffix(r.URL.Host, ":443")); !slices.Contains(b.hosts, host) {
		return nil, wrong(fmt.Sprintf("names host %q, which Sallyport sends no credentials to: an administrator can list it in "+
			"runtimes.pod.snapshots.tokenHosts of the chart", host[:min(len(host), 253)]))
	}
	answer, err := b.inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		_ = answer.Body.Close() // nothing of it is read
		return nil, wrong("redirects to another host, which is not followed")
	}
	answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	return answer, nil
}
