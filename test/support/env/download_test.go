package env

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/env/lookup"
)

// A machine without Go has a control plane when it can be downloaded.
func TestDownloadedControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	mirror := releases(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv(lookup.AssetsVariable, "")
	t.Setenv(lookup.MirrorVariable, mirror)
	t.Setenv(lookup.DownloadVariable, "1")
	stubGo(t, "exit 1")

	cp, err := Start(t.Context(), Options{ControllerManager: true, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}()
	a := cp.Assets
	for _, program := range []string{a.Etcd, a.APIServer, a.ControllerManager, a.Kubectl} {
		if !strings.HasPrefix(program, filepath.Join(cache, "sallyport", "downloads")) {
			t.Errorf("%s is not downloaded", program)
		}
	}
	if out := kubectl(t, cp, "version"); !strings.Contains(out, "Server Version: v1.") {
		t.Errorf("kubectl version:\n%s", out)
	}
	eventually(t, "the controller manager to make a ServiceAccount", func(ctx context.Context) error {
		if _, stderr, code := cp.Kubectl(ctx, "get", "serviceaccount", "default"); code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	if stdout, stderr, code := cp.Helm(t.Context(), "version", "--short"); code != 0 || !strings.HasPrefix(stdout, HelmVersion()) {
		t.Errorf("helm version: exit code %d, %s\n%s", code, stdout, stderr)
	}
}

// releases serves the programs of this machine as their publishers would, and returns the URL.
func releases(t *testing.T) string {
	t.Helper()
	built, err := Binaries(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	helm, err := Helm(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	files := http.NewServeMux()
	serve := func(at, sums string, content []byte) {
		files.HandleFunc(at, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
		files.HandleFunc(sums, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(content), path.Base(at))
		})
	}
	platform := runtime.GOOS + "-" + runtime.GOARCH
	for _, program := range []string{built.APIServer, built.ControllerManager, built.Kubectl} {
		at := "/dl.k8s.io/" + KubernetesVersion() + "/bin/" + runtime.GOOS + "/" + runtime.GOARCH + "/" + filepath.Base(program)
		serve(at, at+".sha256", read(t, program))
	}
	etcd := current.version(etcdProgram.module)
	name, folder := "etcd-"+etcd+"-"+platform, "/github.com/etcd-io/etcd/releases/download/"+etcd
	serve(folder+"/"+name+".tar.gz", folder+"/SHA256SUMS", archived(t, built.Etcd, name+"/etcd"))
	at := "/get.helm.sh/helm-" + HelmVersion() + "-" + platform + ".tar.gz"
	serve(at, at+".sha256sum", archived(t, helm, platform+"/helm"))
	server := httptest.NewServer(files)
	t.Cleanup(server.Close)
	return server.URL
}

func archived(t *testing.T, program, member string) []byte {
	t.Helper()
	content := read(t, program)
	var file bytes.Buffer
	zipped := gzip.NewWriter(&file)
	archive := tar.NewWriter(zipped)
	err := archive.WriteHeader(&tar.Header{Name: member, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))})
	if err == nil {
		_, err = archive.Write(content)
	}
	if err = errors.Join(err, archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
