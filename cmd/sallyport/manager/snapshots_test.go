package manager

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// reading is a manager of which only the reader is wanted.
type reading struct {
	ctrl.Manager
	client.Reader
}

func (r reading) GetAPIReader() client.Reader { return r.Reader }

// The registry's certificate is trusted by the file, and else is not.
func TestRegistryOfSnapshots(t *testing.T) {
	server := httptest.NewUnstartedServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	vm := &v1alpha1.VirtualMachine{Status: v1alpha1.VirtualMachineStatus{Migration: &v1alpha1.Migration{ID: "move"}}}
	vm.Namespace, vm.Name, vm.UID = "a", "b", "c"
	for args, trusted := range map[string]bool{"": false, "--pod-snapshot-ca-file=" + file: true} {
		o := parsed(t, "--pod-runtime --pod-snapshot-repository="+server.Listener.Addr().String()+"/machines "+args)
		store, err := o.snapshots(reading{Reader: fake.NewClientBuilder().Build()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Digest(t.Context(), runtime.MachineOf(vm)); (err == nil) != trusted {
			t.Errorf("%q: %v", args, err)
		}
	}
	if http.DefaultTransport.(*http.Transport).TLSClientConfig != nil && http.DefaultTransport.(*http.Transport).TLSClientConfig.RootCAs != nil {
		t.Error("everybody trusts the file now")
	}
}

func TestFlagsOfSnapshots(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"--pod-snapshot-repository=https://r.example.com/m":                              `--pod-snapshot-repository: "https://r.example.com/m" is not`,
		"--pod-snapshot-repository=r.example.com/m --pod-snapshot-token-hosts=https://a": `--pod-snapshot-token-hosts: "https://a" is not`,
		"--pod-snapshot-repository=r.example.com/m --pod-snapshot-ca-file=/nowhere":      "--pod-snapshot-ca-file: open /nowhere",
		"--pod-snapshot-repository=r.example.com/m --pod-snapshot-ca-file=" + empty:      "contains no PEM certificate",
	} {
		o := parsed(t, "--pod-runtime "+line)
		if _, err := o.snapshots(reading{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if store, err := parsed(t, "--pod-runtime").snapshots(reading{}); store != nil || err != nil {
		t.Error("without a repository there is a registry", err)
	}
	if store, err := parsed(t, "--pod-snapshot-repository=r.example.com/m").snapshots(reading{}); store != nil || err != nil {
		t.Error("without machines that are Pods there is a registry", err)
	}
	refuses(t, "--pod-snapshot-token-hosts=auth.example.com", "--pod-snapshot-token-hosts", "--pod-snapshot-repository")
	refuses(t, "--pod-snapshot-ca-file=ca.crt", "--pod-snapshot-ca-file", "--pod-snapshot-repository")
}
