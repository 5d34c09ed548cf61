package lookup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// helperFind makes this test binary another process, which finds kubectl with the folder that this variable names as home.
const helperFind = "SALLYPORT_LOOKUP_TEST_FIND"

func TestMain(m *testing.M) {
	home := os.Getenv(helperFind)
	if home == "" {
		os.Exit(m.Run())
	}
	f := New(Options{
		Kubernetes: kubernetes, Downloads: filepath.Join(home, "downloads"),
		Logf: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	})
	f.limits.reach, f.limits.stall = time.Minute, time.Minute
	path, _, err := f.Find(context.Background(), Kubectl)
	fmt.Printf("found %q, error %v\n", path, err)
	os.Exit(0)
}

func TestDownload(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "")
	for program, version := range map[string]string{
		Etcd: etcdVersion, APIServer: kubernetes, ControllerManager: kubernetes, Kubectl: kubernetes, Helm: helmVersion,
	} {
		path := m.find(t, program)
		if want := m.path("downloads", version+"-"+platform, program); path != want {
			t.Errorf("Find(%s) = %q, want %q; said %q", program, path, want, m.said)
			continue
		}
		if content, err := os.ReadFile(path); err != nil || string(content) != "released "+program {
			t.Errorf("%s: %q, error %v", path, content, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("%s cannot be run: %v, error %v", path, info.Mode(), err)
		}
		if !m.heard(program + ": downloading " + s.URL) {
			t.Errorf("%q does not say that %s is downloaded", m.said, program)
		}
		s.got()
		if again := m.find(t, program); again != path || len(s.got()) > 0 {
			t.Errorf("the second time, Find(%s) = %q, with a request", program, again)
		}
	}
	if diff := cmp.Diff([]string{Etcd, "lock"}, m.left(t, etcdVersion)); diff != "" {
		t.Errorf("downloads of etcd (-want +got):\n%s", diff)
	}
}

// Whatever a site, a proxy or the network does, no file is taken for the program, and the next run downloads it.
func TestFailedDownload(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>Please log in</html>")) }
	elsewhere := http.RedirectHandler("http://mirror.example/kubectl", http.StatusFound).ServeHTTP
	failed := http.RedirectHandler("/nowhere", http.StatusFound).ServeHTTP
	busy := func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "slow down", http.StatusServiceUnavailable)
	}
	tests := map[string]struct {
		program, path string
		fault         func(content []byte) http.HandlerFunc
		says          string
	}{
		"another file":                 {Kubectl, kubectlPath, serving("malware"), "has the SHA-256"},
		"a page in place of a program": {Kubectl, kubectlPath, always(page), "a proxy may have answered"},
		"a page in place of a checksum": {
			Kubectl, kubectlPath + ".sha256", always(page), "kubectl.sha256 has no checksum of kubectl: a proxy may have answered",
		},
		"an endless checksum":         {Helm, helmPath + ".sha256sum", serving(strings.Repeat("x", 2<<20)), "has no checksum of helm-"},
		"no checksum":                 {Kubectl, kubectlPath + ".sha256", always(http.NotFound), "kubectl.sha256: 404 Not Found"},
		"no checksum of this archive": {Etcd, etcdFolder + "SHA256SUMS", serving(sum(nil) + "  other"), "SHA256SUMS has no checksum of etcd-v3.7.1-"},
		"no release":                  {Helm, helmPath, always(http.NotFound), "404 Not Found"},
		"a busy site":                 {Kubectl, kubectlPath, always(busy), "503 Service Unavailable"},
		"a cut transfer":              {Kubectl, kubectlPath, func(c []byte) http.HandlerFunc { return half(c, func(context.Context) {}) }, "unexpected EOF"},
		"a cut archive":               {Etcd, etcdPath, func(c []byte) http.HandlerFunc { return half(c, func(context.Context) {}) }, "unexpected EOF"},
		"a redirect away from TLS":    {Kubectl, kubectlPath, always(elsewhere), "redirects to a URL that is not https"},
		"a redirect to nothing":       {Kubectl, kubectlPath, always(failed), "404 Not Found"},
		"a redirect to itself":        {Helm, helmPath, always(http.RedirectHandler(helmPath, http.StatusFound).ServeHTTP), "redirects ten times"},
		"a silent site":               {Kubectl, kubectlPath, always(hang), "sends nothing for 50ms"},
		"a transfer that stops":       {Kubectl, kubectlPath, func(c []byte) http.HandlerFunc { return half(c, untilDone) }, "sends nothing for 50ms"},
		"a checksum that stops":       {Kubectl, kubectlPath + ".sha256", func(c []byte) http.HandlerFunc { return half(c, untilDone) }, "sends nothing for 50ms"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, s := newMachine(t), newSite(t)
			fault := test.fault(s.files[test.path])
			s.fail(test.path, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodHead { // a site that can be reached, and then fails
					fault(w, r)
				}
			})
			f := m.finder()
			if strings.Contains(test.says, "50ms") {
				f.limits.stall = 50 * time.Millisecond
			}
			of := "downloading " + test.program + " " + f.version(test.program)
			t.Setenv(DownloadVariable, "")
			path, _, err := f.Find(t.Context(), test.program)
			if path != "" || err != nil || !m.heard(of, test.says, "; building it instead") {
				t.Errorf("Find() = %q, %v; said %q", path, err, m.said)
			}
			t.Setenv(DownloadVariable, "1")
			path, _, err = f.Find(t.Context(), test.program)
			if path != "" || err == nil {
				t.Errorf("with DOWNLOAD=1, Find() = %q, %v", path, err)
			} else if message := err.Error(); !strings.HasPrefix(message, of) || !strings.Contains(message, test.says) || !strings.Contains(message, "DOWNLOAD=1 builds nothing") {
				t.Errorf("with DOWNLOAD=1, the error says: %v", err)
			}
			if diff := cmp.Diff([]string{"lock"}, m.left(t, f.version(test.program))); diff != "" {
				t.Errorf("left behind (-want +got):\n%s", diff)
			}
			s.fail(test.path, nil)
			if path := m.find(t, test.program); !IsFile(path) {
				t.Errorf("the next run finds %q; said %q", path, m.said)
			}
		})
	}
}

func serving(content string) func([]byte) http.HandlerFunc {
	return always(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(content)) })
}

func always(handler http.HandlerFunc) func([]byte) http.HandlerFunc {
	return func([]byte) http.HandlerFunc { return handler }
}

func untilDone(ctx context.Context) { <-ctx.Done() }

// What the checksum promises may still be no release: a broken archive, or one with other names.
func TestArchiveWithoutTheProgram(t *testing.T) {
	for name, content := range map[string][]byte{
		"other names": archive(t, "somewhere/", Helm),
		"half of it":  archive(t, platform+"/", Helm)[:60],
		"no archive":  []byte("helm"),
		"nothing":     {},
	} {
		t.Run(name, func(t *testing.T) {
			m, s := newMachine(t), newSite(t)
			s.files[helmPath] = content
			s.files[helmPath+".sha256sum"] = fmt.Appendf(nil, "%s  %s", sum(content), filepath.Base(helmPath))
			t.Setenv(DownloadVariable, "")
			if path := m.find(t, Helm); path != "" || !m.heard("downloading helm v4.3.1", "building it instead") {
				t.Errorf("Find() = %q, said %q", path, m.said)
			}
			if diff := cmp.Diff([]string{"lock"}, m.left(t, helmVersion)); diff != "" {
				t.Errorf("left behind (-want +got):\n%s", diff)
			}
		})
	}
}

// dl.k8s.io and GitHub redirect to the sites that have the files.
func TestRedirect(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "")
	s.files["/cdn"] = s.files[kubectlPath]
	s.fail(kubectlPath, http.RedirectHandler("/cdn", http.StatusFound).ServeHTTP)
	if path := m.find(t, Kubectl); !IsFile(path) {
		t.Errorf("Find() = %q, said %q", path, m.said)
	}
}

func TestDownloadForbidden(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "0")
	if path := m.find(t, Kubectl); path != "" || len(s.got()) > 0 || len(m.said) > 0 {
		t.Errorf("Find() = %q, with a request or a message %q", path, m.said)
	}
}

func TestUnclearChoice(t *testing.T) {
	m := newMachine(t)
	t.Setenv(DownloadVariable, "yes")
	if path, _, err := m.finder().Find(t.Context(), Kubectl); path != "" || err == nil || !strings.Contains(err.Error(), "DOWNLOAD=yes: set it to 0") {
		t.Errorf("Find() = %q, %v", path, err)
	}
	for variable, value := range map[string]string{MirrorVariable: "mirror", DownloadVariable: "1"} {
		t.Setenv(variable, value)
	}
	if _, _, err := m.finder().Find(t.Context(), Kubectl); err == nil || !strings.Contains(err.Error(), "SALLYPORT_DOWNLOADS=mirror is not a URL") {
		t.Errorf("Find() with a mirror that is not a URL: %v", err)
	}
}

// A site that does not answer is asked once, and all programs of it are built.
func TestSiteOutOfReach(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "")
	f := m.finder()
	f.limits.reach = 50 * time.Millisecond
	for _, program := range []string{APIServer, ControllerManager, Kubectl} {
		s.fail(strings.TrimSuffix(kubectlPath, Kubectl)+program, hang)
		path, _, err := f.Find(t.Context(), program)
		if path != "" || err != nil || !m.heard("downloading "+program+" v1.37.2: ", "does not answer within 50ms; building it instead") {
			t.Errorf("Find(%s) = %q, %v; said %q", program, path, err, m.said)
		}
	}
	// None, if the connection took too long.
	if got := s.got(); len(got) > 1 || len(got) == 1 && !strings.HasPrefix(got[0], "HEAD ") {
		t.Errorf("requests: %q, want one HEAD", got)
	}
}

// What is said of a program names no file of another.
func TestSiteThatRefusesConnections(t *testing.T) {
	m := newMachine(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	t.Setenv(MirrorVariable, closed.URL)
	t.Setenv(DownloadVariable, "")
	f := m.finder()
	for _, program := range []string{APIServer, Kubectl} {
		path, _, err := f.Find(t.Context(), program)
		if path != "" || err != nil || !m.heard("downloading "+program+" v1.37.2: 127.0.0.1:", " cannot be reached: ", "; building it instead") {
			t.Errorf("Find(%s) = %q, %v; said %q", program, path, err, m.said)
		}
	}
	if last := m.said[len(m.said)-1]; strings.Contains(last, APIServer) {
		t.Errorf("said of kubectl: %s", last)
	}
}

// The proxy takes the connection, and then nothing comes of it.
func TestProxyThatHangs(t *testing.T) {
	m := newMachine(t)
	t.Setenv(DownloadVariable, "")
	t.Setenv(MirrorVariable, "")
	var refuses atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses.Load() {
			http.Error(w, "not to "+r.Host, http.StatusForbidden)
			return
		}
		hang(w, r)
	}))
	defer func() { proxy.CloseClientConnections(); proxy.Close() }()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := m.finder()
	f.client = newClient(http.ProxyURL(at))
	f.limits.reach = 50 * time.Millisecond
	path, _, err := f.Find(t.Context(), Kubectl)
	if path != "" || err != nil || !m.heard("dl.k8s.io does not answer within 50ms") {
		t.Errorf("Find() = %q, %v; said %q", path, err, m.said)
	}
	refuses.Store(true)
	t.Setenv(DownloadVariable, "1")
	if path, _, err := f.Find(t.Context(), Kubectl); path != "" || err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("Find() by a proxy that refuses = %q, %v", path, err)
	}
}

func TestUntrustedCertificate(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	secured := httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	defer secured.Close()
	t.Setenv(MirrorVariable, secured.URL)
	t.Setenv(DownloadVariable, "")
	if path := m.find(t, Kubectl); path != "" || !m.heard("certificate", "building it instead") {
		t.Errorf("Find() = %q, said %q", path, m.said)
	}
	f := m.finder()
	f.client.Transport = secured.Client().Transport
	if path, _, err := f.Find(t.Context(), Kubectl); !IsFile(path) || err != nil {
		t.Errorf("Find() with the certificate = %q, %v", path, err)
	}
}

// Without TLS, whoever can replace the program can replace the checksum, too.
func TestMirrorWithoutTLS(t *testing.T) {
	m := newMachine(t)
	t.Setenv(DownloadVariable, "1")
	t.Setenv(MirrorVariable, "http://user:secret@mirror.example/files")
	_, _, err := m.finder().Find(t.Context(), Kubectl)
	want := "the checksum of kubectl is not known in advance, and http://user:xxxxx@mirror.example/files/dl.k8s.io/v1.37.2/bin/"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "is not https") {
		t.Errorf("Find() = %v, want %s", err, want)
	}
}

func TestKnownChecksum(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "1")
	known := m.finder()
	pins, err := known.Checksums(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := sum(s.files[kubectlPath]) + "  https:/" + kubectlPath + "\n"; !strings.Contains(pins, want) {
		t.Errorf("Checksums() = %s\nlacks %s", pins, want)
	}
	known.pins = pins
	s.got()
	if path, _, err := known.Find(t.Context(), Kubectl); !IsFile(path) || err != nil {
		t.Errorf("Find() = %q, %v", path, err)
	}
	if diff := cmp.Diff([]string{"GET " + kubectlPath}, s.got()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	// The site has another file now, and the right checksum of that.
	s.files[helmPath] = archive(t, platform+"/", "helm-with-malware")
	s.files[helmPath+".sha256sum"] = []byte(sum(s.files[helmPath]))
	if path, _, err := known.Find(t.Context(), Helm); path != "" || err == nil || !strings.Contains(err.Error(), "has the SHA-256") {
		t.Errorf("Find() of a replaced release = %q, %v", path, err)
	}
}

func TestNoRoomOnTheDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full:", err)
	}
	m := newMachine(t)
	newSite(t)
	t.Setenv(DownloadVariable, "")
	folder := m.path("downloads", kubernetes+"-"+platform)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(folder, ".kubectl.partial")); err != nil {
		t.Fatal(err)
	}
	path, _, err := m.finder().Find(t.Context(), Kubectl)
	if path != "" || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space there, or set XDG_CACHE_HOME") {
		t.Errorf("Find() = %q, %v", path, err)
	}
	if path := m.find(t, Kubectl); !IsFile(path) {
		t.Errorf("with room, Find() = %q", path)
	}
}

func TestCancelled(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "")
	stopped := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	s.fail(kubectlPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			half(s.files[kubectlPath], func(ctx context.Context) { cancel(stopped); <-ctx.Done() })(w, r)
		}
	})
	if path, _, err := m.finder().Find(ctx, Kubectl); path != "" || !errors.Is(err, stopped) {
		t.Errorf("Find() = %q, %v", path, err)
	}
	if diff := cmp.Diff([]string{"lock"}, m.left(t, kubernetes)); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

// other starts another process that finds kubectl on the machine, and returns it and what it says.
func (m *machine) other(t *testing.T) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd, out := exec.Command(os.Args[0]), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), helperFind+"="+m.home, "GOCOVERDIR="+t.TempDir())
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, out
}

func TestTwoProcessesDownloadOnce(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "")
	started, finish := make(chan struct{}), make(chan struct{})
	s.fail(kubectlPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			close(started) // a second download would panic
			<-finish
		}
		_, _ = w.Write(s.files[kubectlPath])
	})
	other, out := m.other(t)
	<-started
	f := m.finder()
	f.Logf = func(format string, args ...any) {
		m.options.Logf(format, args...)
		if strings.Contains(format, "another process") {
			close(finish)
		}
	}
	if path, _, err := f.Find(t.Context(), Kubectl); !IsFile(path) || err != nil {
		t.Errorf("Find() = %q, %v", path, err)
	}
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
	if want := fmt.Sprintf("found %q, error <nil>", m.path("downloads", kubernetes+"-"+platform, Kubectl)); !strings.Contains(out.String(), want) {
		t.Errorf("the other process says %s\nwant %s", out, want)
	}
}

func TestKilledInTheMiddle(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "")
	started := make(chan struct{})
	s.files[kubectlPath] = bytes.Repeat([]byte("x"), 1<<20) // half of it does not fit into the buffers of a connection
	s.files[kubectlPath+".sha256"] = []byte(sum(s.files[kubectlPath]))
	s.fail(kubectlPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			half(s.files[kubectlPath], func(ctx context.Context) { close(started); <-ctx.Done() })(w, r)
		}
	})
	other, _ := m.other(t)
	<-started
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	s.fail(kubectlPath, nil)
	path := m.find(t, Kubectl)
	if content, err := os.ReadFile(path); err != nil || sum(content) != sum(s.files[kubectlPath]) {
		t.Errorf("the next run finds %q, error %v; said %q", path, err, m.said)
	}
	if diff := cmp.Diff([]string{Kubectl, "lock"}, m.left(t, kubernetes)); diff != "" {
		t.Errorf("downloads (-want +got):\n%s", diff)
	}
}

func TestProgressOfADownload(t *testing.T) {
	m, s := newMachine(t), newSite(t)
	t.Setenv(DownloadVariable, "")
	s.files[kubectlPath] = make([]byte, 3<<20)
	s.files[kubectlPath+".sha256"] = []byte(sum(s.files[kubectlPath]))
	f := m.finder()
	f.limits.report = 0
	if _, _, err := f.Find(t.Context(), Kubectl); err != nil || !m.heard("kubectl: ", " of 3 MB downloaded") {
		t.Errorf("Find(): %v; said %q", err, m.said)
	}
}

// The URLs are what the publishers have.
func TestReleases(t *testing.T) {
	f := New(Options{Kubernetes: kubernetes, Etcd: etcdVersion, Helm: helmVersion})
	if runtime.GOOS != "linux" {
		t.Skip("written for Linux")
	}
	want := []release{
		{
			url:    "https://github.com/etcd-io/etcd/releases/download/v3.7.1/etcd-v3.7.1-linux-amd64.tar.gz",
			sums:   "https://github.com/etcd-io/etcd/releases/download/v3.7.1/SHA256SUMS",
			member: "etcd-v3.7.1-linux-amd64/etcd",
		},
		{
			url:  "https://dl.k8s.io/v1.37.2/bin/linux/arm64/kube-apiserver",
			sums: "https://dl.k8s.io/v1.37.2/bin/linux/arm64/kube-apiserver.sha256",
		},
		{
			url:    "https://get.helm.sh/helm-v4.3.1-linux-amd64.tar.gz",
			sums:   "https://get.helm.sh/helm-v4.3.1-linux-amd64.tar.gz.sha256sum",
			member: "linux-amd64/helm",
		},
	}
	got := []release{f.release(Etcd, "amd64"), f.release(APIServer, "arm64"), f.release(Helm, "amd64")}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(release{})); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
}
