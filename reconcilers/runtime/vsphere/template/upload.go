package template

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vmware/govmomi/nfc"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

var errPin = errors.New("the host has another certificate than vCenter reports")

type upload struct {
	nfc.FileItem // its URL contains a ticket and must not be shown
	device       types.HttpNfcLeaseDeviceUrl
	written      *atomic.Int64
}

// send uploads the file. Only ctx limits its time.
func send(ctx context.Context, s *session.Server, u upload, content io.Reader, size int64) error {
	host, err := hostClient(s, u)
	if err != nil {
		return err
	}
	defer host.CloseIdleConnections()
	body := &counted{Reader: content, read: u.written}
	defer body.end()
	// A disk is converted, anything else becomes a plain file (nfc.Lease.Upload, which only reports what has been sent of each file).
	how := &soap.Upload{Method: http.MethodPost, Type: "application/x-vnd.vmware-streamVmdk", ContentLength: size}
	if u.Create {
		how.Method, how.Type, how.Headers = http.MethodPut, "", map[string]string{"Overwrite": "t"}
	}
	var from io.Reader = body
	if size == 0 {
		from = http.NoBody // otherwise the length would count as unknown
	}
	err = host.Upload(ctx, from, u.URL, how)
	_, unanswered := errors.AsType[*url.Error](err)
	switch {
	case err == nil:
	case unanswered || ctx.Err() != nil: // a host may answer that the content broke off
		return interrupted(ctx, s, u, body, err)
	default:
		return runtime.NewUnavailable(err, "the host that vCenter %s names did not accept %s", s.Config.Name, session.Shown(u.Path))
	}
	return nil
}

func interrupted(ctx context.Context, s *session.Server, u upload, body *counted, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return s.Translate(ctx, cause)
	}
	if failed := body.failed.Load(); failed != nil {
		return unreadable(fmt.Errorf("reading the archive: %w", *failed))
	}
	return runtime.NewUnavailable(withoutURL(err), "the upload of %s to the host that vCenter %s names was interrupted", session.Shown(u.Path), s.Config.Name)
}

// withoutURL strips the URL, which contains a ticket.
func withoutURL(err error) error {
	if of, is := errors.AsType[*url.Error](err); is {
		return of.Err
	}
	return err
}

// hostClient returns a client of the host of an upload, which must have the certificate that vCenter reports or, if it reports none, one that is
// trusted like vCenter's.
func hostClient(s *session.Server, u upload) (*soap.Client, error) {
	trust, err := s.Config.Trust()
	if err != nil {
		return nil, err
	}
	if u.device.SslCertificate != "" || u.device.SslThumbprint != "" {
		trust = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: pinned(u.device)} // instead of authorities
	}
	client := session.NewClient(u.URL, trust)
	if s.Config.WrapREST != nil {
		client.Transport = s.Config.WrapREST(client.Transport)
	}
	return client, nil
}

// pinned verifies that a host presents the certificate that vCenter reports.
func pinned(device types.HttpNfcLeaseDeviceUrl) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if !presents(state.PeerCertificates[0], device) {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: errPin}
		}
		return nil
	}
}

func presents(certificate *x509.Certificate, device types.HttpNfcLeaseDeviceUrl) bool {
	if device.SslCertificate != "" {
		block, _ := pem.Decode([]byte(device.SslCertificate))
		return block != nil && bytes.Equal(block.Bytes, certificate.Raw)
	}
	return strings.EqualFold(device.SslThumbprint, soap.ThumbprintSHA1(certificate)) ||
		strings.EqualFold(device.SslThumbprint, soap.ThumbprintSHA256(certificate))
}

// counted counts the bytes read, and keeps the read error. The transport may read for a moment after the request has
// ended: it then gets nothing, because the next request uses the reader.
type counted struct {
	io.Reader
	read   *atomic.Int64
	failed atomic.Pointer[error]

	mu    sync.Mutex
	ended bool
}

// end waits for a read in progress, and ends later ones.
func (c *counted) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

func (c *counted) Read(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, io.ErrUnexpectedEOF
	}
	n, err = c.Reader.Read(p)
	c.read.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		c.failed.Store(&err)
	}
	return n, err
}
