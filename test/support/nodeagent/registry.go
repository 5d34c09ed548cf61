package nodeagent

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry is one for snapshots, over TLS, in this process.
type Registry struct{ server *httptest.Server }

// StartRegistry starts an empty one on a port of its own.
func StartRegistry() *Registry {
	return &Registry{httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))}
}

// Repository is where the snapshots of all machines are.
func (r *Registry) Repository() string { return r.server.Listener.Addr().String() + "/machines" }

// Transport trusts the registry.
func (r *Registry) Transport() http.RoundTripper { return r.server.Client().Transport }

// WriteAuthority writes a file by which others trust it.
func (r *Registry) WriteAuthority(file string) error {
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	return os.WriteFile(file, text, 0o600)
}

// Close ends it.
func (r *Registry) Close() { r.server.Close() }
