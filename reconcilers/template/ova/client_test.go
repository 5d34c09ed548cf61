package ova

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

func TestForbids(t *testing.T) {
	c := &Downloader{Forbidden: append(LocalAddresses(), netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("::ffff:192.0.2.0/120"))}
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::": true, "0.0.0.0": true, "169.254.169.254": true, "fe80::1": true,
		"fe80::1%eth0": true, "::ffff:127.0.0.1": true, "::ffff:10.97.0.1": true, "10.111.255.255": true, "64:ff9b::7f00:1": true, "64:ff9b:1::7f00:1": true,
		"64:ff9b::a60:1": true, "224.0.0.1": true, "255.255.255.255": true, "fd00:ec2::254": true, "192.0.2.7": true,
		"10.95.255.255": false, "10.112.0.0": false, "198.51.100.7": false, "2001:db8::1": false, "64:ff9b::c633:6407": false,
		"::ffff:198.51.100.7": false,
	} {
		if got := c.forbids(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
	for _, address := range []string{"", "nonsense", "127.0.0.1", "/var/run/socket"} {
		if err := c.control(t.Context(), "tcp", address, nil); !errors.Is(err, errForbidden) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// What is dialled is judged, whatever the name was.
func TestForbiddenAddress(t *testing.T) {
	w := serving(t, content("abcdefg", 1000))
	elsewhere := w.source()
	elsewhere.URL = strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)
	w.Forbidden = LocalAddresses()
	w.refuses(w.source(), runtime.IsInvalidSpec, "spec.source.url", "downloads are forbidden")
	_, err := w.fetch(elsewhere)
	w.told(err, runtime.IsInvalidSpec, "spec.source.url", "downloads are forbidden")
	if strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "::1") {
		t.Errorf("the address is in: %v", err)
	}
	if asked := w.asked(); asked > 0 {
		t.Errorf("the server was asked %d times", asked)
	}
}

func TestRedirects(t *testing.T) {
	data := content("abcdefg", 1000)
	var hops atomic.Int32
	for name, tc := range map[string]struct {
		to   func(w *world) string
		is   func(error) bool
		word string
	}{
		"elsewhere": {to: func(w *world) string { return w.server.URL + "/b.ova?token=secret" }},
		"five times": {to: func(w *world) string {
			if hops.Add(1) == maxRedirects {
				return w.server.URL + "/b.ova"
			}
			return "/hop"
		}},
		"for ever":        {func(*world) string { return "/hop?token=secret" }, runtime.IsInvalidSpec, "redirects more than 5 times"},
		"to http":         {func(*world) string { return "http://127.0.0.1/?token=secret" }, runtime.IsInvalidSpec, "does not begin with https://"},
		"to a file":       {func(*world) string { return "file:///etc/passwd?token=secret" }, runtime.IsInvalidSpec, "does not begin with https://"},
		"to credentials":  {func(*world) string { return "https://a:secret@127.0.0.1/" }, runtime.IsInvalidSpec, "with a user or a password"},
		"to nonsense":     {func(*world) string { return "https://%zz/?token=secret" }, runtime.IsUnavailable, "response of the server is invalid"},
		"to an address":   {func(*world) string { return "https://169.254.169.254/?token=secret" }, runtime.IsInvalidSpec, "leads to an address"},
		"to another port": {func(*world) string { return "https://127.0.0.1:1/?token=secret" }, runtime.IsUnavailable, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, data)
			w.Forbidden = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}
			w.answers(func(out http.ResponseWriter, request *http.Request) {
				if request.URL.Path == "/b.ova" {
					if request.Referer() != "" || request.Header.Get("Authorization") != "" {
						t.Errorf("the other server is told: %v", request.Header)
					}
					w.serve(out, request)
					return
				}
				http.Redirect(out, request, tc.to(w), http.StatusFound)
			})
			if tc.is == nil {
				w.has(w.source(), data)
				return
			}
			w.refuses(w.source(), tc.is, "spec.source.url", tc.word)
			if asked := w.asked(); asked != 1 && asked != 1+maxRedirects {
				t.Errorf("the server was asked %d times", asked)
			}
		})
	}
}

func TestCertificates(t *testing.T) {
	w := serving(t, content("abcdefg", 1000))
	t.Run("no authority that the system trusts", func(*testing.T) {
		source := w.source()
		source.CABundle = ""
		w.refuses(source, runtime.IsUnavailable, "spec.source.caBundle: it is empty")
	})
	t.Run("another authority", func(t *testing.T) {
		source := w.source()
		source.CABundle = another(t)
		w.refuses(source, runtime.IsUnavailable, "spec.source.caBundle: the certificate of the server of ", "is not signed by an authority in it")
	})
	t.Run("another host", func(t *testing.T) {
		source := w.source()
		source.URL = strings.Replace(source.URL, "127.0.0.1", "localhost", 1)
		w.refuses(source, runtime.IsUnavailable, "spec.source.url", "for another host")
	})
}

// another gives the certificate of an authority that has signed nothing.
func another(t *testing.T) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))
}

func TestTLS(t *testing.T) {
	for name, tc := range map[string]struct {
		listen func(*httptest.Server)
		word   string
	}{
		"an old version": {func(s *httptest.Server) {
			s.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
			s.StartTLS()
		}, "protocol version"},
		"none": {(*httptest.Server).Start, "does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, content("abcdefg", 1000))
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			tc.listen(server)
			defer server.Close()
			source := w.source()
			source.URL = "https://" + server.Listener.Addr().String() + "/a.ova?token=secret"
			w.refuses(source, runtime.IsUnavailable, "spec.source.url", tc.word)
		})
	}
}

// Neither what the environment says of proxies nor a compressed answer is used.
func TestNoProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	transport := (&Downloader{}).client(&origin{}).Transport.(*http.Transport)
	if transport.Proxy != nil || !transport.DisableCompression {
		t.Error("a proxy, or compression")
	}
}

// What is said of an error has no address and no URL in it, and is the same each time.
func TestWhy(t *testing.T) {
	for want, err := range map[string]error{
		"no such host":                              &net.DNSError{Name: "a", Server: "192.0.2.1:53", IsNotFound: true},
		"the host name cannot be resolved":          &net.DNSError{Name: "a", Server: "192.0.2.1:53", IsTimeout: true},
		"the server did not answer in time":         &net.OpError{Op: "dial", Err: context.DeadlineExceeded},
		"the server ended the connection too early": io.EOF,
		"the response of the server is invalid":     errors.New("https://a/?token=secret"),
	} {
		if got := describe(err); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}
