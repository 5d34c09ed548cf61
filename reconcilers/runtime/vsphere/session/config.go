package session

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

// Config is the address and trust of a vCenter. Its certificate is always verified: by CABundle, by Thumbprint, by
// both if both are set, and by the system's authorities if neither is.
type Config struct {
	// Name is the name of the vCenter in errors, such as that of its VSphereServer.
	Name string
	// URL is its address, such as https://vcenter.example.org, without a user. The path defaults to /sdk.
	URL string
	// CABundle contains authorities in PEM, one of which must have signed the vCenter's certificate.
	CABundle []byte
	// Thumbprint is the SHA-256 of the vCenter's certificate, in hex, with or without colons. Without a CABundle
	// nothing else about the certificate is verified.
	Thumbprint string
	// InstanceUUID is the ID of the vCenter. Another one gets no credentials; the error wraps [runtime.Other]. If it is empty, the first one is accepted.
	InstanceUUID string
	// Credentials returns user and password. It is called for every login, since they may change, and must be safe
	// for concurrent use.
	Credentials func(ctx context.Context) (*url.Userinfo, error)
	// Wrap, if set, wraps every request after the login, for tests.
	Wrap func(soap.RoundTripper) soap.RoundTripper
	// WrapREST, if set, wraps every request of the REST API and every upload, for tests.
	WrapREST func(http.RoundTripper) http.RoundTripper
	// HungAfter is how long a request must have waited without any answer before vCenter counts as hung and most
	// requests fail at once. Default 2s.
	HungAfter time.Duration
	// ProbeAfter is how long a hung vCenter gets no request; a default if it is 0.
	ProbeAfter time.Duration
}

// errBadURL replaces the error of url.Parse, which quotes the whole URL with a password that it may contain.
var errBadURL = errors.New("it must be https://host, without a user")

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

// errThumbprint is the error of a certificate with another thumbprint.
var errThumbprint = errors.New("the certificate has another thumbprint")

// Trust returns a TLS configuration that trusts exactly what is configured.
func (c *Config) Trust() (*tls.Config, error) {
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
	// Go calls VerifyConnection in any case; the thumbprint replaces the verification by authorities.
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
