package lookup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	kubernetes  = "v1.37.2"
	etcdVersion = "v3.7.1"
	helmVersion = "v4.3.1"
	platform    = runtime.GOOS + "-" + runtime.GOARCH
)

var (
	kubectlPath = "/dl.k8s.io/v1.37.2/bin/" + runtime.GOOS + "/" + runtime.GOARCH + "/kubectl"
	etcdFolder  = "/github.com/etcd-io/etcd/releases/download/v3.7.1/"
	etcdPath    = etcdFolder + "etcd-v3.7.1-" + platform + ".tar.gz"
	helmPath    = "/get.helm.sh/helm-v4.3.1-" + platform + ".tar.gz"
)

// site is a mirror of the release sites on the loopback device.
type site struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string
	faults   map[string]http.HandlerFunc // by path; served in place of the file
	files    map[string][]byte
}

// newSite returns a mirror that has a release of each program, and makes it the one that is asked.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{files: map[string][]byte{}, faults: map[string]http.HandlerFunc{}}
	var etcdSums []byte
	for _, arch := range []string{"amd64", "arm64"} {
		for _, program := range []string{APIServer, ControllerManager, Kubectl} {
			path := "/dl.k8s.io/v1.37.2/bin/" + runtime.GOOS + "/" + arch + "/" + program
			s.files[path] = []byte("released " + program)
			s.files[path+".sha256"] = []byte(sum(s.files[path])) // dl.k8s.io has no newline there
		}
		name := "etcd-v3.7.1-" + runtime.GOOS + "-" + arch
		s.files[etcdFolder+name+".tar.gz"] = archive(t, name+"/", Etcd)
		etcdSums = fmt.Appendf(etcdSums, "%s  %s.tar.gz\n", sum(s.files[etcdFolder+name+".tar.gz"]), name)
		path := "/get.helm.sh/helm-v4.3.1-" + runtime.GOOS + "-" + arch + ".tar.gz"
		s.files[path] = archive(t, runtime.GOOS+"-"+arch+"/", Helm)
		s.files[path+".sha256sum"] = fmt.Appendf(nil, "%s  %s\n", sum(s.files[path]), filepath.Base(path))
	}
	s.files[etcdFolder+"SHA256SUMS"] = etcdSums
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	// Open connections are closed first: a handler that hangs ends with its request.
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	t.Setenv(MirrorVariable, s.URL)
	return s
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	fault, content := s.faults[r.URL.Path], s.files[r.URL.Path]
	s.mu.Unlock()
	switch {
	case fault != nil:
		fault(w, r)
	case content == nil:
		http.NotFound(w, r)
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// fail has a path served by another handler; by the file again if that is nil.
func (s *site) fail(path string, with http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[path] = with
}

// got returns the requests since the last call.
func (s *site) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

func sum(content []byte) string {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

// archive returns a release with a program and a file beside it.
func archive(t *testing.T, folder, program string) []byte {
	t.Helper()
	var file bytes.Buffer
	zipped := gzip.NewWriter(&file)
	members := tar.NewWriter(zipped)
	for _, name := range []string{"README.md", program} {
		content := []byte("released " + name)
		err := members.WriteHeader(&tar.Header{Name: folder + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := members.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := members.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// machine is a user's machine without any program, and what a Finder said on it.
type machine struct {
	options Options
	home    string
	mu      sync.Mutex
	said    []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{home: t.TempDir()}
	t.Setenv("HOME", m.home)
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv(AssetsVariable, "")
	t.Setenv(DownloadVariable, "0")
	t.Setenv(MirrorVariable, "http://127.0.0.1:1") // no test asks the real sites
	t.Setenv("PATH", m.path("bin"))                // the tests' own machine may have kubectl and helm
	m.options = Options{
		Kubernetes: kubernetes, Etcd: etcdVersion, Helm: helmVersion,
		Built: m.path("built"), Downloads: m.path("downloads"), PATH: true,
		Logf: func(format string, args ...any) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.said = append(m.said, fmt.Sprintf(format, args...))
		},
	}
	return m
}

func (m *machine) path(elem ...string) string {
	return filepath.Join(append([]string{m.home}, elem...)...)
}

// finder returns a Finder that waits as long as it takes.
func (m *machine) finder() *Finder {
	f := New(m.options)
	f.limits = limits{version: time.Minute, reach: time.Minute, stall: time.Minute, report: time.Minute}
	return f
}

// script makes a program that is a shell script, and returns its path.
func (m *machine) script(t *testing.T, name, script string) string {
	t.Helper()
	return m.file(t, name, "#!/bin/sh\n"+script+"\n")
}

func (m *machine) file(t *testing.T, name, content string) string {
	t.Helper()
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// heard reports whether one line has all the parts.
func (m *machine) heard(parts ...string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.said, func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

// find looks for a program; whatever is wrong is an error of the test.
func (m *machine) find(t *testing.T, program string) string {
	t.Helper()
	path, _, err := m.finder().Find(t.Context(), program)
	if err != nil {
		t.Errorf("Find(%s): %v", program, err)
	}
	return path
}

// left returns the files in the folder of a version's downloads.
func (m *machine) left(t *testing.T, version string) []string {
	t.Helper()
	entries, err := os.ReadDir(m.path("downloads", version+"-"+platform))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// hang is a handler that does not answer until the client gives up.
func hang(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
}

// half is a handler that sends half of a file, and then does something else.
func half(content []byte, then func(context.Context)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:len(content)/2])
		_ = http.NewResponseController(w).Flush()
		then(r.Context())
	}
}
