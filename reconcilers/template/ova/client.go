package ova

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"syscall"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

const (
	// maxRedirects limits the redirects of a download.
	maxRedirects = 5
	// connectTimeout limits the time to establish a connection.
	connectTimeout = 15 * time.Second
	// maxHeaders limits the bytes of response headers.
	maxHeaders = 64 << 10
)

var (
	errForbidden    = errors.New("a forbidden address")
	errTooFar       = errors.New("too many redirects")
	errUnprotected  = errors.New("a redirect that is not https")
	errWithPassword = errors.New("a redirect with credentials")
)

var digests = regexp.MustCompile(`^[0-9a-f]{64}$`)

// origin is a parsed source.
type origin struct {
	shown  string // host and path of the URL, for messages: the rest may contain a token
	digest string

	url   string
	roots *x509.CertPool // nil means the system's
}

func parse(source v1alpha1.VSphereTemplateSource) (*origin, error) {
	if !digests.MatchString(source.SHA256) {
		return nil, runtime.NewInvalidSpec(nil, "spec.source.sha256 must be 64 hexadecimal digits in lowercase")
	}
	from := &origin{url: source.URL, digest: source.SHA256}
	parsed, err := url.Parse(source.URL)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil {
		return nil, from.invalidURL()
	}
	from.shown = parsed.Host + parsed.EscapedPath()
	if source.CABundle != "" {
		from.roots = x509.NewCertPool()
		if !from.roots.AppendCertsFromPEM([]byte(source.CABundle)) {
			return nil, runtime.NewInvalidSpec(nil, "spec.source.caBundle contains no readable PEM certificate")
		}
	}
	return from, nil
}

// client returns a client for one download. It uses no proxy, no cookies and no HTTP/2, which has no advantage for
// one large file.
func (o *Downloader) client(from *origin) *http.Client {
	dialer := &net.Dialer{Timeout: connectTimeout, ControlContext: o.control}
	return &http.Client{
		CheckRedirect: redirect,
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: from.roots},
			TLSHandshakeTimeout:    connectTimeout,
			MaxResponseHeaderBytes: maxHeaders,
			DisableKeepAlives:      true,
			DisableCompression:     true,
		},
	}
}

// redirect decides whether a redirect is followed. The target does not learn the original URL, which may contain a
// token.
func redirect(request *http.Request, via []*http.Request) error {
	request.Header.Del("Referer")
	switch {
	case len(via) > maxRedirects:
		return errTooFar
	case request.URL.Scheme != "https":
		return errUnprotected
	case request.URL.User != nil:
		return errWithPassword
	}
	return nil
}

// control rejects forbidden addresses. It is called for each address that is about to be dialed, after name
// resolution, so that a name which resolves differently the next time gains nothing.
func (o *Downloader) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	dialled, err := netip.ParseAddrPort(address)
	if err != nil || o.forbids(dialled.Addr()) {
		return errForbidden
	}
	return nil
}

// forbids reports whether an address is forbidden in any of its notations.
func (o *Downloader) forbids(address netip.Addr) bool {
	address = address.WithZone("") // A prefix contains no address with a zone.
	forms := []netip.Addr{address, address.Unmap(), netip.AddrFrom16(address.As16())}
	if slices.ContainsFunc(nat64, func(p netip.Prefix) bool { return p.Contains(address) }) {
		embedded := address.As16()
		forms = append(forms, netip.AddrFrom4([4]byte(embedded[12:])))
	}
	for _, prefix := range o.Forbidden {
		for _, form := range forms {
			if prefix.Contains(form) {
				return true
			}
		}
	}
	return false
}

// nat64 are the prefixes under which IPv6-only networks reach IPv4 addresses (RFC 6052, RFC 8215).
var nat64 = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}

// LocalAddresses returns the prefixes that lead only to the node and its neighbors: loopback, link-local (which
// includes cloud metadata) and multicast.
func LocalAddresses() (prefixes []netip.Prefix) {
	for _, prefix := range []string{
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
		"::/127", "fe80::/10", "ff00::/8", "fd00:ec2::254/128",
	} {
		prefixes = append(prefixes, netip.MustParsePrefix(prefix))
	}
	return prefixes
}
