package vsphere

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/soap"
)

// Config says which vCenter a Server is and how it is reached. Its certificate is always verified: by CABundle, by
// Thumbprint, by both if both are given, and by the system's authorities if neither is.
type Config struct {
	// Name is what errors call the vCenter, such as the name of its VSphereServer.
	Name string
	// URL is where it is, such as https://vcenter.example.org, without a user. The path defaults to /sdk.
	URL string
	// CABundle are certificates of authorities in PEM, one of which must have signed the vCenter's.
	CABundle []byte
	// Thumbprint is the SHA-256 of the certificate that the vCenter must present, in hex, with or without colons.
	// Without a CABundle nothing else is asked of that certificate.
	Thumbprint string
	// Credentials gives the user and the password. It is called at every login, since they may change, and must be safe for concurrent
	// use.
	Credentials func(ctx context.Context) (*url.Userinfo, error)
	// Wrap, if it is set, is put around every request from the login on, for tests.
	Wrap func(soap.RoundTripper) soap.RoundTripper
	// WrapREST, if it is set, is put around every request of the REST API and every upload, for tests.
	WrapREST func(http.RoundTripper) http.RoundTripper
	// HungAfter is how long a request must have waited, while nothing was answered, before the vCenter counts as hung and most requests
	// fail at once. Default 2s.
	HungAfter time.Duration
}

// errBadURL stands in for the error of url.Parse, which quotes the whole URL with a password that may be in it.
var errBadURL = errors.New("it must be https://host, without a user")

// address gives the URL of the SDK.
func (c *Config) address() (*url.URL, error) {
	address, err := url.Parse(c.URL)
	if err != nil || address.Scheme != "https" || address.Host == "" || address.User != nil {
		return nil, fmt.Errorf("the URL of vCenter %s: %w", c.Name, errBadURL)
	}
	if address.Path == "" || address.Path == "/" {
		address.Path = "/sdk"
	}
	return address, nil
}

// errThumbprint is why a certificate without the given thumbprint is refused.
var errThumbprint = errors.New("the certificate has another thumbprint")

// trust gives the TLS configuration that trusts what it is told to and nothing else.
func (c *Config) trust() (*tls.Config, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CABundle) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(c.CABundle) {
			return nil, fmt.Errorf("the CA bundle of vCenter %s: no certificate in PEM", c.Name)
		}
	}
	if c.Thumbprint == "" {
		return trust, nil
	}
	want, err := hex.DecodeString(strings.ReplaceAll(c.Thumbprint, ":", ""))
	if err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("the thumbprint of vCenter %s: not the 64 hex digits of a SHA-256", c.Name)
	}
	// Go calls VerifyConnection in any case, and the thumbprint takes the place of the authorities that it skips.
	trust.InsecureSkipVerify = trust.RootCAs == nil
	trust.VerifyConnection = func(state tls.ConnectionState) error {
		got := sha256.Sum256(state.PeerCertificates[0].Raw)
		if !bytes.Equal(got[:], want) {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: errThumbprint}
		}
		return nil
	}
	return trust, nil
}
