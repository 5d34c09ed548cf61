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

// snapshots gives the registry that machines that are Pods are moved through, and nil if there is none.
func (o *Options) snapshots(mgr ctrl.Manager) (*snapshot.Store, error) {
	if !o.PodRuntime || o.PodSnapshotRepository == "" {
		return nil, nil
	}
	transport, err := o.snapshotTransport()
	if err != nil {
		return nil, fmt.Errorf("reading --pod-snapshot-ca-file: %w", err)
	}
	store, err := snapshot.New(o.PodSnapshotRepository, mgr.GetAPIReader(), transport)
	if err != nil {
		return nil, fmt.Errorf("reading --pod-snapshot-repository: %w", err)
	}
	return store, nil
}

// snapshotTransport trusts whom the system trusts, and the authorities of the file.
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
		return nil, errors.New(o.PodSnapshotCAFile + " has no certificate in PEM")
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	return transport, nil
}
