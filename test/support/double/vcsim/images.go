package vcsim

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Images is a web server with OVAs, by their releases. Its URL names localhost: policy templates-release refuses addresses of loopback.
type Images struct {
	server    *httptest.Server
	authority string
	mu        sync.Mutex
	all       map[string][]byte
	next      Answer
}

// Answer answers a request for an OVA in place of the server.
type Answer func(w http.ResponseWriter, r *http.Request, content []byte)

// ServeImages starts a web server without OVAs.
func ServeImages() (*Images, error) {
	authority, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(authority, key)
	if err != nil {
		return nil, err
	}
	i := &Images{authority: string(authority), all: map[string][]byte{}}
	i.server = httptest.NewUnstartedServer(i)
	i.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	i.server.StartTLS()
	return i, nil
}

// Close stops the server.
func (i *Images) Close() { i.server.Close() }

// Badly has the next request be answered like that.
func (i *Images) Badly(a Answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.next = a
}

// Add gives the source of an OVA of that release, which the server has from now on.
func (i *Images) Add(release string, ova []byte) v1alpha1.VSphereTemplateSource {
	content := slices.Concat(ova, []byte(release)) // beyond the end of the archive
	sum := sha256.Sum256(content)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all["/"+release+".ova"] = content
	return v1alpha1.VSphereTemplateSource{
		URL:    strings.Replace(i.server.URL, "127.0.0.1", "localhost", 1) + "/" + release + ".ova",
		SHA256: hex.EncodeToString(sum[:]), CABundle: i.authority,
	}
}

// ServeHTTP answers with an OVA.
func (i *Images) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	content, is := i.all[r.URL.Path]
	next := i.next
	i.next = nil
	i.mu.Unlock()
	switch {
	case !is:
		http.NotFound(w, r)
	case next != nil:
		next(w, r, content)
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}
