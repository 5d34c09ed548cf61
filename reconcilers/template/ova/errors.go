package ova

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	"k8s.io/apimachinery/pkg/util/duration"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// Errors of package net/http contain URLs and those of package net addresses. They are therefore never wrapped:
// messages are our own.

// invalidURL returns the error of an invalid URL. The schema has the same rule.
func (o *origin) invalidURL() error {
	return runtime.NewInvalidSpec(nil, "spec.source.url must begin with https://, have a host, and contain no user or password")
}

// canceled returns the error of a download whose context has ended.
func (o *origin) canceled(ctx context.Context) error {
	return fmt.Errorf("downloading %s: %w", o.shown, context.Cause(ctx))
}

func (o *origin) statusError(status int) error {
	refuse := runtime.NewInvalidSpec
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status < 400, status >= 500:
		refuse = runtime.NewUnavailable
	}
	return refuse(nil, "spec.source.url: the server of %s answered %d %s", o.shown, status, http.StatusText(status))
}

// connectionError returns why there is no response, or no more of it.
func (o *origin) connectionError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errTooSlow) {
		return templates.NewTooSlow("spec.source.url: the download from the server of %s stalled, or brought less than %d MiB in %s", o.shown, minBytes>>20, duration.HumanDuration(defaultPatience))
	}
	if ctx.Err() != nil {
		return o.canceled(ctx)
	}
	switch {
	case errors.Is(err, errForbidden):
		return runtime.NewInvalidSpec(nil, "spec.source.url: %s leads to an address from which downloads are forbidden", o.shown)
	case errors.Is(err, errTooFar):
		return runtime.NewInvalidSpec(nil, "spec.source.url: %s redirects more than %d times", o.shown, maxRedirects)
	case errors.Is(err, errUnprotected):
		return runtime.NewInvalidSpec(nil, "spec.source.url: %s redirects to a URL that does not begin with https://", o.shown)
	case errors.Is(err, errWithPassword):
		return runtime.NewInvalidSpec(nil, "spec.source.url: %s redirects to a URL with a user or a password", o.shown)
	}
	if verification, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return o.certificateError(verification.Err)
	}
	return runtime.NewUnavailable(nil, "spec.source.url: downloading %s failed: %s", o.shown, describe(err))
}

// certificateError returns what is wrong with the server's certificate. It may be replaced, so a retry can succeed.
func (o *origin) certificateError(err error) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if o.roots != nil {
			return runtime.NewUnavailable(nil, "spec.source.caBundle: the certificate of the server of %s is not signed by an authority in it", o.shown)
		}
		return runtime.NewUnavailable(nil,
			"spec.source.caBundle: it is empty, and the certificate of the server of %s is not signed by an authority that the system trusts", o.shown)
	}
	what := "is not valid"
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		what = "is for another host"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		what = "has expired, or is not valid yet"
	}
	return runtime.NewUnavailable(nil, "spec.source.url: the certificate of the server of %s %s", o.shown, what)
}

// describe returns the cause in stable words without addresses.
func describe(err error) string {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		if lookup.IsNotFound {
			return "no such host"
		}
		return "the host name cannot be resolved"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "the server did not answer in time"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" { // package tls reports an alert of the peer like this
		return alert.Err.Error()
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return "the server does not speak TLS"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the server ended the connection too early"
	}
	return "the response of the server is invalid"
}
