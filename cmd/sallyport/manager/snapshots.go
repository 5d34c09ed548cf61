package manager

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/reconcilers/snapshot"
)

// snapshots returns the registry for snapshots of migrating machines, or nil if none is configured.
func (o *Options) snapshots(mgr ctrl.Manager) (*snapshot.Store, error) {
	if !o.PodRuntime || o.PodSnapshotRepository == "" {
		return nil, nil
	}
	transport, err := o.snapshotTransport()
	if err != nil {
		return nil, fmt.Errorf("reading --pod-snapshot-ca-file: %w", err)
	}
	if _, err := snapshot.New(o.PodSnapshotRepository, mgr.GetAPIReader(), transport); err != nil {
		return nil, fmt.Errorf("reading --pod-snapshot-repository: %w", err)
	}
	store, err := snapshot.New(o.PodSnapshotRepository, mgr.GetAPIReader(), transport, o.PodSnapshotTokenHosts...)
	if err != nil {
		return nil, fmt.Errorf("reading --pod-snapshot-token-hosts: %w", err)
	}
	return store, nil
}

// snapshotTransport trusts the authorities of the system and of the file.
func (o *Options) snapshotTransport() (http.RoundTripper, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.PodSnapshotCAFile == "" {
		return transport, nil
	}
	authorities, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(o.PodSnapshotCAFile)
	if err != nil {
		return nil, err
	}
	if !authorities.AppendCertsFromPEM(text) {
		return nil, errors.New(o.PodSnapshotCAFile + " contains no PEM certificate")
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	return transport, nil
}
