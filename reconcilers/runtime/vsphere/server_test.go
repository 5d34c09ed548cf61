package vsphere_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/disk"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
	"sallyport.dev/sallyport/test/support/step"
)

// at gives the runtime of a server of that configuration.
func (w *world) at(change func(c *session.Config)) *disk.Runtime {
	w.Helper()
	config := w.config()
	change(&config)
	return disk.New(w.connect(config))
}

// otherCA is an authority that has signed nothing here.
func otherCA(t *testing.T) []byte {
	other := httptest.NewUnstartedServer(nil)
	other.TLS = &tls.Config{}
	other.StartTLS()
	t.Cleanup(other.Close)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})
}

func TestTrust(t *testing.T) {
	w := newWorld(t)
	m := w.machine("trusted")
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.Must(err)
	_ = listener.Close()
	wrong := strings.Repeat("00:", 31) + "00"
	for name, c := range map[string]struct {
		change func(c *session.Config)
		want   string // The message, or nothing for no error.
	}{
		"its authority":  {func(*session.Config) {}, ""},
		"its thumbprint": {func(c *session.Config) { c.CABundle, c.Thumbprint = nil, w.Thumbprint() }, ""},
		"its thumbprint without colons": {func(c *session.Config) {
			c.CABundle, c.Thumbprint = nil, strings.ToLower(strings.ReplaceAll(w.Thumbprint(), ":", ""))
		}, ""},
		"both": {func(c *session.Config) { c.Thumbprint = w.Thumbprint() }, ""},
		"nothing": {func(c *session.Config) { c.CABundle = nil },
			"the certificate of vCenter lab is not signed by an authority that the system trusts"},
		"another authority": {func(c *session.Config) { c.CABundle = otherCA(t) },
			"the certificate of vCenter lab is not signed by an authority of its CA bundle"},
		"another thumbprint": {func(c *session.Config) { c.CABundle, c.Thumbprint = nil, wrong },
			"the certificate of vCenter lab does not match the configured thumbprint"},
		"its authority and another thumbprint": {func(c *session.Config) { c.Thumbprint = wrong },
			"the certificate of vCenter lab does not match the configured thumbprint"},
		"another authority and its thumbprint": {func(c *session.Config) { c.CABundle, c.Thumbprint = otherCA(t), w.Thumbprint() },
			"the certificate of vCenter lab is not signed by an authority of its CA bundle"},
		"another name": {func(c *session.Config) { c.URL = strings.Replace(c.URL, "127.0.0.1", "localhost", 1) },
			"the certificate of vCenter lab is not for the host in its URL"},
		"no TLS": {func(c *session.Config) { c.URL = strings.Replace(plain.URL, "http:", "https:", 1) },
			"vCenter lab did not answer"},
		"nobody": {func(c *session.Config) { c.URL = "https://" + listener.Addr().String() },
			"the host of vCenter lab refuses connections"},
	} {
		t.Run(name, func(t *testing.T) {
			rt := w.at(c.change)
			for range 2 {
				_, err := rt.Observe(t.Context(), m)
				if got := runtime.Message(err); got != c.want || runtime.IsUnavailable(err) != (c.want != "") {
					t.Errorf("got %q (%v), want %q", got, err, c.want)
				}
			}
		})
	}
}

func TestBadConfig(t *testing.T) {
	good := session.Config{Name: "lab", URL: "https://vc.example.org"}
	for name, change := range map[string]func(c *session.Config){
		"no URL":          func(c *session.Config) { c.URL = "" },
		"no TLS":          func(c *session.Config) { c.URL = "http://vc.example.org" },
		"a user":          func(c *session.Config) { c.URL = "https://root:hunter2@vc.example.org" },
		"a broken user":   func(c *session.Config) { c.URL = "https://root:hunter2%@vc.example.org" },
		"no certificate":  func(c *session.Config) { c.CABundle = []byte("hunter2") },
		"a blank bundle":  func(c *session.Config) { c.CABundle = []byte("\n") },
		"no thumbprint":   func(c *session.Config) { c.Thumbprint = "hunter2" },
		"a SHA-1":         func(c *session.Config) { c.Thumbprint = strings.Repeat("00", 20) },
		"a relative path": func(c *session.Config) { c.URL = "/sdk" },
	} {
		config := good
		change(&config)
		_, err := session.NewServer(config)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	if _, err := session.NewServer(good); err != nil {
		t.Error(err)
	}
}

// A few wrong passwords in a row lock an account, so that one that was refused is not tried over and over; another is
// tried at once.
func TestWrongPassword(t *testing.T) {
	w := newWorld(t)
	m := w.machine("secret")
	right := w.User()
	var mu sync.Mutex
	user := url.UserPassword(right.Username(), "hunter2")
	rt := w.at(func(c *session.Config) {
		c.Credentials = func(context.Context) (*url.Userinfo, error) {
			mu.Lock()
			defer mu.Unlock()
			return user, nil
		}
	})
	for range 5 {
		_, err := rt.Observe(t.Context(), m)
		if !runtime.IsPermission(err) || !strings.Contains(runtime.Message(err), "vCenter lab refused the login") {
			t.Fatalf("got error %v, want Permission", err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is in %q", err)
		}
	}
	if _, refused := w.Logins(); refused != 1 {
		t.Errorf("%d logins were refused, want one", refused)
	}
	mu.Lock()
	user = right
	mu.Unlock()
	if _, err := rt.Observe(t.Context(), m); err != nil {
		t.Error(err)
	}
}

func TestCredentialsThatCannotBeHad(t *testing.T) {
	w := newWorld(t)
	m := w.machine("lost")
	rt := w.at(func(c *session.Config) {
		c.Credentials = func(context.Context) (*url.Userinfo, error) { return nil, errors.New("no secret of that name") }
	})
	if _, err := rt.Observe(t.Context(), m); !runtime.IsUnavailable(err) {
		t.Errorf("got error %v, want Unavailable", err)
	}
}

// atOnce calls f many times at the same time.
func atOnce(t *testing.T, f func() error) {
	t.Helper()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestSession(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("kept")
	observe := func() error {
		_, err := w.runtime.Observe(t.Context(), m)
		return err
	}
	for round := 1; round <= 3; round++ {
		for range 10 {
			atOnce(t, observe)
		}
		if logins, _ := w.Logins(); logins != round || w.Sessions() != 1 {
			t.Errorf("after %d rounds there were %d logins and are %d sessions", round, logins, w.Sessions())
		}
		w.ExpireSessions()
		if w.Sessions() != 0 {
			t.Fatal("the sessions did not expire")
		}
	}
	// A request that changes something is made again just the same: vCenter has not looked at it.
	w.on(m) // a machine that is still starting cannot be shut down
	w.ExpireSessions()
	w.Must(w.runtime.PowerOff(t.Context(), m, runtime.Graceful))
	w.Must(w.server.Close(t.Context()))
	if w.Sessions() != 0 {
		t.Errorf("%d sessions are left after closing", w.Sessions())
	}
	if err := observe(); !runtime.IsUnavailable(err) {
		t.Errorf("after closing: got error %v, want Unavailable", err)
	}
}

// A login does not end with the call that it was made for, so that no session is left behind that nobody knows of.
func TestCloseDuringLogin(t *testing.T) {
	w := newWorld(t)
	m := w.machine("early")
	asked, go_ := make(chan struct{}), make(chan struct{})
	config := w.config()
	config.Credentials = func(context.Context) (*url.Userinfo, error) {
		close(asked)
		<-go_
		return w.User(), nil
	}
	server := w.connect(config)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := disk.New(server).Observe(ctx, m); !runtime.IsUnavailable(err) {
		t.Errorf("got error %v, want Unavailable", err)
	}
	closed := make(chan error)
	go func() { closed <- server.Close(t.Context()) }()
	close(go_)
	w.Must(<-closed)
	if w.Sessions() != 0 {
		t.Errorf("%d sessions are left", w.Sessions())
	}
}

// proxy stands between a client and the vCenter, and hangs as long as it is told to.
type proxy struct {
	*httptest.Server
	hangs   atomic.Bool
	strict  atomic.Bool   // No datastore satisfies a storage policy.
	tagging atomic.Int32  // What requests for tags are answered with, and 0 for what the vCenter says.
	reached chan struct{} // Gets one for each request that it hangs on.
	broken  chan struct{} // Gets one for each connection that was given up while it hung.
}

func newProxy(w *world) *proxy {
	target, err := url.Parse(w.URL())
	w.Must(err)
	target.Path = ""
	p := &proxy{reached: make(chan struct{}, 10), broken: make(chan struct{}, 10)}
	forward := httputil.NewSingleHostReverseProxy(target)
	roots := (&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
	w.Cleanup(roots.CloseIdleConnections)
	forward.Transport = roots
	forward.ModifyResponse = func(r *http.Response) error {
		if p.strict.Load() && r.Request.URL.Path == "/pbm" {
			all, err := io.ReadAll(r.Body)
			all = bytes.ReplaceAll(all, []byte("<hubId>"), []byte("<hubId>other-than-"))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(all)), int64(len(all))
			r.Header.Del("Content-Length")
			return err
		}
		return nil
	}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if p.hangs.Load() {
			// The server watches the connection once the body has been read.
			body := make([]byte, 1<<20)
			for {
				if _, err := r.Body.Read(body); err != nil {
					break
				}
			}
			p.reached <- struct{}{}
			<-r.Context().Done()
			p.broken <- struct{}{}
			return
		}
		if status := p.tagging.Load(); status != 0 && strings.HasPrefix(r.URL.Path, "/rest/com/vmware/cis/tagging/") {
			rw.WriteHeader(int(status))
			return
		}
		forward.ServeHTTP(rw, r)
	}))
	w.Cleanup(p.Close)
	return p
}

func TestHangingVCenter(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("hanging")
	p := newProxy(w)
	rt := w.at(func(c *session.Config) {
		c.URL = p.URL
		c.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	})
	if _, err := rt.Observe(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	p.hangs.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-p.reached
		cancel()
	}()
	if err := rt.PowerOn(ctx, m); !runtime.IsUnavailable(err) || !runtime.MayHaveActed(err) {
		t.Errorf("got error %v, want Unavailable", err)
	}
	select {
	case <-p.broken:
	case <-time.After(step.Patience):
		t.Error("the connection was not given up")
	}
	p.hangs.Store(false)
	if seen, err := rt.Observe(t.Context(), m); err != nil || !seen.Quiet() || w.State(w.path(m)).PowerOns != 0 {
		t.Errorf("afterwards: %+v, %v", seen, err)
	}
}

// About 110 machines on one vCenter that hangs took all workers, five seconds each. Once it has not answered, nobody waits for it but
// who asks whether it is there, and what that answers is the end of it.
func TestNobodyWaitsForAHungVCenter(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("hanging")
	p := newProxy(w)
	config := w.config()
	config.URL = p.URL
	config.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	config.HungAfter, config.ProbeAfter = time.Nanosecond, time.Hour
	server := w.connect(config)
	rt := disk.New(server)
	if _, err := rt.Observe(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	p.hangs.Store(true)
	briefly, expire := step.Deadline(t.Context())
	go func() {
		<-p.reached
		expire()
	}()
	_, first := rt.Observe(briefly, m)
	for range 110 { // without a time of their own: they would wait for ever
		_, err := rt.Observe(t.Context(), m)
		if !runtime.IsUnavailable(err) || runtime.Message(err) != runtime.Message(first) {
			t.Fatalf("got %v after %v", err, first)
		}
		if err := rt.PowerOn(t.Context(), m); !runtime.IsUnavailable(err) {
			t.Fatalf("powering on: got %v", err)
		}
		if err := server.REST(t.Context(), "a test", func(*rest.Client) error { return nil }); !runtime.IsUnavailable(err) {
			t.Fatalf("the REST API: got %v", err)
		}
	}
	if len(p.reached) > 0 {
		t.Errorf("%d requests were sent", len(p.reached))
	}
	p.hangs.Store(false)
	if _, err := server.About(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Observe(t.Context(), m); err != nil {
		t.Errorf("after it has answered: %v", err)
	}
}

// Nothing of the credentials gets into an error, whatever goes wrong.
func TestNoSecretInErrors(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("silent")
	password, _ := w.User().Password()
	broken := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(broken.Close)
	redirecting := httptest.NewTLSServer(http.RedirectHandler(w.URL(), http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)
	for name, rt := range map[string]*disk.Runtime{
		"untrusted": w.at(func(c *session.Config) { c.CABundle = nil }),
		"broken": w.at(func(c *session.Config) {
			c.URL = broken.URL
			c.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: broken.Certificate().Raw})
		}),
		"redirecting": w.at(func(c *session.Config) {
			c.URL = redirecting.URL
			c.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: redirecting.Certificate().Raw})
		}),
		"refusing": w.at(func(c *session.Config) {
			c.Credentials = func(context.Context) (*url.Userinfo, error) {
				return url.UserPassword("somebody", password), nil
			}
		}),
		"losing": w.runtime,
	} {
		if rt == w.runtime {
			w.faults.LoseReply()
		}
		_, err := rt.Observe(t.Context(), m)
		if err == nil || strings.Contains(err.Error(), password) || strings.Contains(err.Error(), w.User().Username()) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	m := w.adopted("refused")
	object := types.ManagedObjectReference{Type: "VirtualMachine", Value: "vm-42"}
	for name, c := range map[string]struct {
		cause   any
		is      func(error) bool
		message string
		acted   bool
	}{
		"no permission": {&types.NoPermission{Object: &object, PrivilegeId: "VirtualMachine.Interact.PowerOn"},
			runtime.IsPermission, "the privilege VirtualMachine.Interact.PowerOn on VirtualMachine vm-42", false},
		"no permissions": {&types.NoPermission{MissingPrivileges: []types.NoPermissionEntityPrivileges{
			{Entity: object, PrivilegeIds: []string{"A.B", "C.D"}}}},
			runtime.IsPermission, "the privilege A.B and C.D on VirtualMachine vm-42", false},
		"gone":          {&types.ManagedObjectNotFound{Obj: object}, runtime.IsNotFound, "no longer has the machine", false},
		"another power": {&types.InvalidPowerState{ExistingState: "suspended"}, runtime.IsInvalidState, "suspended", false},
		"another state": {&types.InvalidState{}, runtime.IsInvalidState, "InvalidState", false},
		"busy":          {&types.TaskInProgress{Task: object}, runtime.IsInvalidState, "another task", false},
		"no memory":     {&types.InsufficientMemoryResourcesFault{}, runtime.IsInvalidState, "InsufficientMemory", false},
		"not supported": {&types.NotSupported{}, runtime.IsInvalidState, "NotSupported", false},
		"a lost host":   {&types.HostNotConnected{}, runtime.IsUnavailable, "HostNotConnected", true},
		"a fault":       {&types.SystemError{Reason: "17"}, runtime.IsUnavailable, "failed with SystemError", true},
	} {
		// What does not fit the machine's state is decided anew, once.
		w.faults.Refuse(c.cause, "PowerOnVM_Task")
		w.faults.Refuse(c.cause, "PowerOnVM_Task")
		err := w.runtime.PowerOn(t.Context(), m)
		w.faults.Clear()
		if !c.is(err) || !strings.Contains(runtime.Message(err), c.message) || runtime.MayHaveActed(err) != c.acted {
			t.Errorf("%s: got error %v of reason %s", name, err, runtime.Reason(err))
		}
	}
	w.faults.Refuse(&types.ToolsUnavailable{}, "ShutdownGuest")
	w.on(m)
	if err := w.runtime.PowerOff(t.Context(), m, runtime.Graceful); !runtime.IsToolsUnavailable(err) {
		t.Errorf("got error %v, want ToolsUnavailable", err)
	}
	if got := w.State(w.path(m)); got.Power != v1alpha1.PowerRunning {
		t.Errorf("the machine is %+v", got)
	}
}
