package snapshot_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/snapshot"
)

const (
	host   = "registry.example.com" // where the client of httptest finds its server
	prefix = host + "/machines"
)

// world is a registry, with what befalls requests to it, and a Store of it.
type world struct {
	*testing.T
	server  *httptest.Server
	handler http.Handler
	// befalls answers a request itself if it returns true.
	befalls func(w http.ResponseWriter, r *http.Request) bool
	// requests counts those that were made, those for the challenge left out.
	requests atomic.Int64
	secrets  client.Client
	store    *snapshot.Store
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/" {
			w.requests.Add(1)
		}
		if w.befalls == nil || !w.befalls(out, r) {
			w.handler.ServeHTTP(out, r)
		}
	}))
	w.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	w.secrets = fake.NewClientBuilder().Build()
	w.store = w.open(w.secrets, w.server.Client().Transport)
	return w
}

func (w *world) open(live client.Reader, transport http.RoundTripper) *snapshot.Store {
	s, err := snapshot.New(prefix, live, transport)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func machine(migration string) runtime.Machine {
	return runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "team-a", Name: "web-1"}, UID: "0b5c-uid",
		Spec:      &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
		Migration: &v1alpha1.Migration{ID: types.UID(migration)},
	}
}

// with has the machine name a Secret.
func with(m runtime.Machine, secret string) runtime.Machine {
	m.Spec.Runtime.Pod.SnapshotSecretRef = &v1alpha1.SnapshotSecretReference{Name: secret}
	return m
}

// push pushes what no other push does, as an agent would, and gives its digest.
func (w *world) push(ref string) string {
	befalls := w.befalls
	w.befalls = nil
	defer func() { w.befalls = befalls }()
	image, err := random.Image(16, 1)
	if err != nil {
		w.Fatal(err)
	}
	to, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		w.Fatal(err)
	}
	if err := remote.Write(to, image, remote.WithTransport(w.server.Client().Transport)); err != nil {
		w.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		w.Fatal(err)
	}
	return digest.String()
}

func (w *world) digest(m runtime.Machine) string {
	w.Helper()
	digest, err := w.store.Digest(w.Context(), m)
	if err != nil {
		w.Error(err)
	}
	return digest
}

func (w *world) secret(name string, kind corev1.SecretType, data string) {
	s := &corev1.Secret{Type: kind, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)}}
	s.Namespace, s.Name = "team-a", name
	if err := w.secrets.Create(w.Context(), s); err != nil {
		w.Fatal(err)
	}
}

func says(err error) string {
	if err == nil {
		return ""
	}
	return string(runtime.Reason(err)) + ": " + runtime.Message(err)
}

func TestRefHasTheMachineAndTheMigration(t *testing.T) {
	if got, want := newWorld(t).store.Ref(machine("move-1")), "registry.example.com/machines/team-a/0b5c-uid:move-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPrefixThatIsNone(t *testing.T) {
	for _, prefix := range []string{
		"", "machines", "https://registry.example.com/machines", "registry.example.com", "registry.example.com/", "registry.example.com/machines/",
		"registry.example.com//machines", "registry.example.com/../machines", "registry.example.com/Machines", "registry.example.com/machines:tag",
		"registry.example.com/machines@sha256:0", "registry.example.com/" + strings.Repeat("a", 200), "user:pass@registry.example.com/machines",
	} {
		if _, err := snapshot.New(prefix, nil, nil); err == nil || !strings.Contains(err.Error(), strconv.Quote(prefix)) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	for _, prefix := range []string{"registry.example.com/machines", "localhost:5000/m", "10.0.0.1/a/b", "registry:5000/machines", "docker.io/team/machines"} {
		if _, err := snapshot.New(prefix, nil, nil); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestDigestIsThatOfTheMigration(t *testing.T) {
	w := newWorld(t)
	m := machine("move-1")
	if got := w.digest(m); got != "" {
		t.Errorf("before anything was pushed: %s", got)
	}
	first := w.push(w.store.Ref(m))
	if got := w.digest(m); got != first {
		t.Errorf("got %s, want %s", got, first)
	}
	if got := w.digest(machine("move-2")); got != "" {
		t.Errorf("another move has %s", got)
	}
	other := machine("move-1")
	other.UID = "of-the-same-name"
	if got := w.digest(other); got != "" {
		t.Errorf("another machine has %s", got)
	}
}

func TestDiscardRemovesEverythingOfTheMachine(t *testing.T) {
	w := newWorld(t)
	other := machine("move-1")
	other.UID = "other"
	kept := w.push(w.store.Ref(other))
	digests := []string{w.push(w.store.Ref(machine("move-1"))), w.push(w.store.Ref(machine("move-2")))}
	if left, err := w.store.Left(t.Context(), machine("")); err != nil || left != w.store.Ref(machine("move-1")) {
		t.Errorf("left is %q, %v", left, err)
	}
	for range 2 {
		if err := w.store.Discard(t.Context(), machine("move-2")); err != nil {
			t.Fatal(err)
		}
	}
	repository, err := name.NewRepository(prefix + "/team-a/0b5c-uid")
	if err != nil {
		t.Fatal(err)
	}
	for _, digest := range digests {
		if _, err := remote.Get(repository.Digest(digest), remote.WithTransport(w.server.Client().Transport)); err == nil {
			t.Errorf("%s is still there", digest)
		}
	}
	if left, err := remote.List(repository, remote.WithTransport(w.server.Client().Transport)); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	if left, err := w.store.Left(t.Context(), machine("")); err != nil || left != "" {
		t.Errorf("left is %q, %v", left, err)
	}
	if got := w.digest(other); got != kept {
		t.Errorf("another machine's snapshot is gone: %s", got)
	}
	if err := w.store.Discard(t.Context(), withUID("never-moved")); err != nil {
		t.Error(err)
	}
}

// What Discard wants is also what is there if somebody else removes tags meanwhile, or the manifest between two requests. Distribution takes the
// tags away with a manifest, and refuses to remove one by itself; Harbor has a code of its own.
func TestDiscardOfWhatGoes(t *testing.T) {
	byTag := func(r *http.Request) bool {
		return r.Method == http.MethodDelete && (strings.HasSuffix(r.URL.Path, ":move-1") || strings.HasSuffix(r.URL.Path, "/move-1"))
	}
	for name, tc := range map[string]struct {
		befalls func(*http.Request) bool
		code    int
		text    string
		gone    bool // there is nothing left of it here
	}{
		"a tag, which is no digest":    {byTag, http.StatusBadRequest, "", false},
		"a tag, which is not there":    {byTag, http.StatusNotFound, "", false},
		"a tag, which stays by itself": {byTag, http.StatusMethodNotAllowed, "", false},
		"tags that go": {func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/tags/list") },
			http.StatusOK, `{"name":"x","tags":["gone","move-1"]}`, true},
		"a manifest that goes": {func(r *http.Request) bool { return r.Method == http.MethodDelete },
			http.StatusNotFound, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := machine("move-1")
			w.push(w.store.Ref(m))
			w.befalls = func(out http.ResponseWriter, r *http.Request) bool {
				if !tc.befalls(r) {
					return false
				}
				out.WriteHeader(tc.code)
				fmt.Fprint(out, tc.text)
				return true
			}
			if err := w.store.Discard(t.Context(), m); err != nil {
				t.Error(err)
			}
			if tc.gone && w.digest(m) != "" {
				t.Errorf("left is %s", w.digest(m))
			}
		})
	}
	w := newWorld(t)
	w.befalls = answers(http.StatusNotFound, `{"errors":[{"code":"NOT_FOUND","message":"artifact not found"}]}`)
	if got := w.digest(machine("move-1")); got != "" {
		t.Error(got)
	}
}

// A list that does not end is gone through in portions, each of which removes what it saw.
func TestDiscardOfMoreThanOneTakes(t *testing.T) {
	w := newWorld(t)
	for _, of := range []struct {
		name string
		page int
	}{{"many tags", 1001}, {"many pages", 1}} {
		var deleted, listed int
		w.befalls = func(out http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.HasSuffix(r.URL.Path, "/tags/list"):
				var tags []string
				for i := range of.page {
					tags = append(tags, fmt.Sprintf("t-%d-%d", listed, i))
				}
				listed++
				out.Header().Set("Link", `</v2/machines/team-a/0b5c-uid/tags/list?last=x>; rel="next"`)
				_ = json.NewEncoder(out).Encode(map[string]any{"tags": tags})
			case r.Method == http.MethodDelete:
				deleted++
				return false
			default:
				return false
			}
			return true
		}
		got := says(w.store.Discard(t.Context(), machine("move-1")))
		if want := "RuntimeUnavailable: repository registry.example.com/machines/team-a/0b5c-uid has more than 1000 tags, and not all could be removed at once"; got != want {
			t.Errorf("%s: got %q, want %q", of.name, got, want)
		}
		if deleted == 0 || deleted > 1000 || listed > 100 {
			t.Errorf("%s: %d deleted, %d pages", of.name, deleted, listed)
		}
	}
}

// What a registry lists is not what it has somebody delete elsewhere.
func TestDiscardOfWhatIsNoTag(t *testing.T) {
	w := newWorld(t)
	w.befalls = func(out http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			fmt.Fprint(out, `{"tags":["../../../other/manifests/latest"]}`)
			return true
		}
		if r.Method == http.MethodDelete {
			t.Errorf("%s was deleted", r.URL.Path)
		}
		return false
	}
	got := says(w.store.Discard(t.Context(), machine("move-1")))
	if want := "RuntimeUnavailable: registry registry.example.com lists an invalid tag"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func withUID(uid types.UID) runtime.Machine {
	m := machine("move-1")
	m.UID = uid
	return m
}

// later answers everything but the question whether there is a registry.
func later(answer http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v2/" {
			return false
		}
		answer(w, r)
		return true
	}
}

func answers(code int, body string) func(http.ResponseWriter, *http.Request) bool {
	return later(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	})
}

// Nothing but the registry's own word counts as there being none, and each request is made once.
func TestDoubtIsAnError(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	for name, of := range map[string]struct {
		befalls  func(w http.ResponseWriter, r *http.Request) bool
		want     string
		requests int64
	}{
		"a proxy does not know the path": {answers(404, "404 page not found"), "RuntimeUnavailable: registry registry.example.com answered 404 Not Found", 1},
		"another error with the code of an absence": {
			answers(500, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`), "RuntimeUnavailable: registry registry.example.com answered 500 Internal Server Error", 1,
		},
		"too many requests": {
			answers(429, `{"errors":[{"code":"TOOMANYREQUESTS"}]}`), "RuntimeUnavailable: registry registry.example.com answered 429 Too Many Requests", 1,
		},
		"there is no registry at all": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(404)
			fmt.Fprint(w, `{"errors":[{"code":"NAME_UNKNOWN"}]}`)
			return true
		}, "RuntimeUnavailable: registry registry.example.com answered 404 Not Found", 0},
		"a page for people": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>please log in</html>")
			return true
		}, "RuntimeUnavailable: registry registry.example.com returned something that is not a manifest", 1},
		"it hangs up": {func(_ http.ResponseWriter, r *http.Request) bool { panic(http.ErrAbortHandler) },
			"RuntimeUnavailable: the response of registry registry.example.com is invalid", 0},
		"it hangs up in the middle": {later(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "{")
		}), "RuntimeUnavailable: the response of registry registry.example.com is invalid", 1},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}, "RuntimeUnavailable: registry registry.example.com redirects to another host, which is not followed", 0},
		"a redirect of the manifest alone": {later(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
		}), "RuntimeUnavailable: registry registry.example.com redirects to another host, which is not followed", 1},
		"a challenge for somebody else's password": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://169.254.169.254/token"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, "RuntimeUnavailable: the response of registry registry.example.com is invalid", 0},
		"an answer without end": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = w.Write(make([]byte, 5<<20))
			return true
		}, "RuntimeUnavailable: registry registry.example.com returned more than 4194304 bytes", 1},
		"nobody may pull, whoever it is": {answers(403, ""),
			"PermissionDenied: registry registry.example.com denies anonymous requests to pull machines/team-a/0b5c-uid: name a Secret with credentials in spec.runtime.pod.snapshotSecretRef", 1},
		"nobody may pull": {answers(401, ""),
			"PermissionDenied: registry registry.example.com denies anonymous requests to pull machines/team-a/0b5c-uid: name a Secret with credentials in spec.runtime.pod.snapshotSecretRef", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := machine("move-1")
			w.push(w.store.Ref(m))
			w.befalls = of.befalls
			w.requests.Store(0)
			digest, err := w.store.Digest(t.Context(), m)
			if diff := cmp.Diff(of.want, says(err)); diff != "" || digest != "" {
				t.Errorf("digest %q, (-want +got):\n%s", digest, diff)
			}
			if got := w.requests.Load(); got != of.requests {
				t.Errorf("%d requests, want %d", got, of.requests)
			}
			if got := runtime.Reason(w.store.Discard(t.Context(), m)); got == "" {
				t.Error("Discard had no doubt")
			}
		})
	}
}

func TestRegistryThatIsAway(t *testing.T) {
	w := newWorld(t)
	w.server.Close()
	_, err := w.store.Digest(t.Context(), machine("move-1"))
	if got, want := says(err), "RuntimeUnavailable: registry registry.example.com cannot be reached"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCertificateThatIsNotTrusted(t *testing.T) {
	w := newWorld(t)
	strange := w.server.Client().Transport.(*http.Transport).Clone()
	strange.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	_, err := w.open(w.secrets, strange).Digest(t.Context(), machine("move-1"))
	if got, want := says(err), "RuntimeUnavailable: the certificate of registry registry.example.com is not trusted"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Docker speaks to registries of private addresses without TLS; credentials and digests would be anybody's there.
func TestNothingGoesWithoutTLS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("there was a request") }))
	defer plain.Close()
	s, err := snapshot.New(plain.Listener.Addr().String()+"/machines", fake.NewClientBuilder().Build(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := s.Digest(t.Context(), machine("move-1")); digest != "" || !runtime.IsUnavailable(err) {
		t.Error(digest, err)
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	w := newWorld(t)
	asked, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	w.befalls = func(_ http.ResponseWriter, r *http.Request) bool {
		close(asked)
		<-ended
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := w.store.Digest(ctx, machine("move-1"))
	if got, want := says(err), "RuntimeUnavailable: registry registry.example.com did not answer in time"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// guarded has the registry ask for a password, and lets nobody delete but the admin.
func (w *world) guarded() {
	w.befalls = func(out http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		switch {
		case password != "secret-of-"+user:
			out.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			out.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodDelete && user != "admin":
			out.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(out, `{"errors":[{"code":"DENIED","message":"%s may not"}]}`, password)
		default:
			return false
		}
		return true
	}
}

func TestCredentials(t *testing.T) {
	w := newWorld(t)
	m := machine("move-1")
	want := w.push(w.store.Ref(m))
	w.guarded()
	entry := func(user, password string) string {
		return fmt.Sprintf(`{"username":%q,"password":%q}`, user, password)
	}
	for name, data := range map[string]string{
		"host":      `{"auths":{"registry.example.com":` + entry("admin", "secret-of-admin") + `}}`,
		"https":     `{"auths":{"https://registry.example.com/":` + entry("admin", "secret-of-admin") + `}}`,
		"v1":        `{"auths":{"https://registry.example.com/v1/":` + entry("admin", "secret-of-admin") + `}}`,
		"exact":     `{"auths":{"https://registry.example.com":` + entry("x", "x") + `,"registry.example.com":` + entry("admin", "secret-of-admin") + `}}`,
		"auth":      `{"auths":{"registry.example.com":{"auth":"YWRtaW46c2VjcmV0LW9mLWFkbWlu"}}}`,
		"wrong":     `{"auths":{"registry.example.com":` + entry("admin", "guess-of-admin") + `}}`,
		"reader":    `{"auths":{"registry.example.com":` + entry("reader", "secret-of-reader") + `}}`,
		"elsewhere": `{"auths":{"example.com":` + entry("admin", "secret-of-admin") + `,"registry.example.com:5000":` + entry("admin", "secret-of-admin") + `}}`,
		"empty":     `{"auths":{"registry.example.com":{}}}`,
		"spoilt":    `{"auths":{"registry.example.com":{"auth":"secret-of-admin"}}}`,
	} {
		w.secret(name, corev1.SecretTypeDockerConfigJson, data)
	}
	w.secret("opaque", corev1.SecretTypeOpaque, `{}`)
	for _, good := range []string{"host", "https", "v1", "exact", "auth", "reader"} {
		if got := w.digest(with(machine("move-1"), good)); got != want {
			t.Errorf("%s: %q", good, got)
		}
	}
	field := "InvalidSpec: spec.runtime.pod.snapshotSecretRef: Secret "
	for secret, want := range map[string]string{
		"wrong":     "PermissionDenied: registry registry.example.com does not accept the credentials of Secret team-a/wrong for machines/team-a/0b5c-uid: they need the right to pull there",
		"reader":    "PermissionDenied: registry registry.example.com does not accept the credentials of Secret team-a/reader for machines/team-a/0b5c-uid: they need the right to delete there",
		"elsewhere": field + "elsewhere has no credentials for registry registry.example.com",
		"empty":     field + "empty has no credentials for registry registry.example.com",
		"spoilt":    field + "spoilt has no Docker configuration in .dockerconfigjson",
		"opaque":    field + "opaque must have type kubernetes.io/dockerconfigjson",
		"missing":   field + "missing does not exist",
	} {
		err := w.store.Discard(t.Context(), with(machine("move-1"), secret))
		if diff := cmp.Diff(want, says(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", secret, diff)
		}
		if strings.Contains(err.Error(), "-of-") {
			t.Errorf("a password shows: %s", err)
		}
	}
	if err := w.store.Discard(t.Context(), with(machine("move-1"), "host")); err != nil {
		t.Error(err)
	}
}

// Many registries have a token be fetched with the password, for what is about to be done.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	m := machine("move-1")
	want := w.push(w.store.Ref(m))
	w.secret("mine", corev1.SecretTypeDockerConfigJson, `{"auths":{"registry.example.com":{"username":"admin","password":"secret"}}}`)
	w.befalls = func(out http.ResponseWriter, r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		scope := strings.Join(r.URL.Query()["scope"], " ")
		switch {
		case r.URL.Path == "/token" && password == "secret":
			fmt.Fprintf(out, `{"token":%q}`, scope)
		case r.URL.Path == "/token":
			out.WriteHeader(http.StatusUnauthorized)
		case !strings.Contains(r.Header.Get("Authorization"), "repository:machines/team-a/0b5c-uid:"),
			r.Method == http.MethodDelete && !strings.Contains(r.Header.Get("Authorization"), "delete"):
			out.Header().Set("WWW-Authenticate", `Bearer realm="https://registry.example.com/token",service="registry"`)
			out.WriteHeader(http.StatusUnauthorized)
		default:
			return false
		}
		return true
	}
	mine := with(machine("move-1"), "mine")
	if got := w.digest(mine); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := w.store.Discard(t.Context(), mine); err != nil {
		t.Error(err)
	}
	_, err := w.store.Digest(t.Context(), m)
	if !runtime.IsPermission(err) {
		t.Error(err)
	}
}

// The credentials of a machine go to no host that only the registry names.
func TestTokensOfAnotherHost(t *testing.T) {
	const refusal = `RuntimeUnavailable: registry registry.example.com names host "auth.example.com", which Sallyport sends no credentials to: ` +
		`an administrator can list it in runtimes.pod.snapshots.tokenHosts of the chart`
	for name, c := range map[string]struct {
		realm, config string
		listed        []string
		says          string
		asked         int64
	}{
		"not listed":                {"https://auth.example.com/token", `{"username": "web", "password": "s3cret"}`, nil, refusal, 0},
		"not listed, with a token":  {"https://auth.example.com/token", `{"identitytoken": "s3cret"}`, nil, refusal, 0},
		"listed with another port":  {"https://auth.example.com/token", `{"username": "web", "password": "s3cret"}`, []string{"auth.example.com:8443"}, refusal, 0},
		"the host with its port":    {"https://registry.example.com:443/token", `{"username": "web", "password": "s3cret"}`, nil, "", 1},
		"listed":                    {"https://auth.example.com/token", `{"username": "web", "password": "s3cret"}`, []string{"auth.example.com"}, "", 1},
		"listed, in other letters":  {"https://AUTH.example.com:443/token", `{"username": "web", "password": "s3cret"}`, []string{"auth.example.com:443"}, "", 1},
		"its name within a name":    {"https://registry.example.com.example.org/token", `{"username": "web", "password": "s3cret"}`, nil, strings.Replace(refusal, "auth.example.com", "registry.example.com.example.org", 1), 0},
		"its name before another's": {"https://registry.example.com@auth.example.com/token", `{"username": "web", "password": "s3cret"}`, nil, refusal, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := with(machine("move-1"), "s")
			w.secret("s", corev1.SecretTypeDockerConfigJson, `{"auths": {"registry.example.com": `+c.config+`}}`)
			w.push(w.store.Ref(m))
			var asked atomic.Int64
			w.befalls = func(out http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.URL.Path == "/token":
					asked.Add(1)
					_, _ = io.WriteString(out, `{"token": "t0ken"}`)
				case r.Header.Get("Authorization") == "Bearer t0ken":
					return false
				default:
					out.Header().Set("WWW-Authenticate", `Bearer realm="`+c.realm+`",service="registry"`)
					out.WriteHeader(http.StatusUnauthorized)
				}
				return true
			}
			// Every host leads to the server of the test.
			transport := w.server.Client().Transport.(*http.Transport).Clone()
			transport.TLSClientConfig.InsecureSkipVerify = true
			transport.DialTLSContext = nil
			transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, w.server.Listener.Addr().String())
			}
			store, err := snapshot.New(prefix, w.secrets, transport, c.listed...)
			if err != nil {
				t.Fatal(err)
			}
			_, err = store.Digest(t.Context(), m)
			if got := says(err); got != c.says || asked.Load() != c.asked {
				t.Errorf("it says %q, and the host was asked %d times", got, asked.Load())
			}
		})
	}
	if _, err := snapshot.New(prefix, nil, nil, "https://auth.example.com/token"); err == nil {
		t.Error("a URL is taken for a host")
	}
}

func TestSecretsThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	for want, refusal := range map[string]error{
		"InvalidSpec: spec.runtime.pod.snapshotSecretRef: Secret mine cannot be read: an administrator can add namespace team-a to " +
			"rbac.snapshotSecrets in the values of the chart": apierrors.NewForbidden(corev1.Resource("secrets"), "mine", nil),
		"RuntimeUnavailable: Secret mine could not be read": apierrors.NewInternalError(io.ErrUnexpectedEOF),
	} {
		live := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return refusal
			},
		})
		_, err := w.open(live, w.server.Client().Transport).Digest(t.Context(), with(machine("move-1"), "mine"))
		if got := says(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A registry that lets nobody delete has to be told from one that lets somebody else.
func TestDeletionThatIsSwitchedOff(t *testing.T) {
	w := newWorld(t)
	m := machine("move-1")
	w.push(w.store.Ref(m))
	w.befalls = func(out http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			out.WriteHeader(http.StatusMethodNotAllowed)
		}
		return r.Method == http.MethodDelete
	}
	got := says(w.store.Discard(t.Context(), m))
	if want := "PermissionDenied: registry registry.example.com does not allow deletion: its administrator must enable it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
