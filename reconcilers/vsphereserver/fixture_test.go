package vsphereserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) { install.Main(m) }

const (
	password = "hunter2 /&%secret"
	changed  = "correct-horse"
)

// vCenters are vCenters that take one user and one password, and what was done to them.
type vCenters struct {
	mu        sync.Mutex
	takes     string // the password
	err       error  // instead of an answer to Connect
	hostsErr  error
	hosts     []v1alpha1.VSphereHost
	places    v1alpha1.VSphereInventory
	marked    []Marked
	tenants   []v1alpha1.VSphereTenant // that were asked for last
	connected map[string]Connection
	forgotten []string
	logins    int
	is        string // the instance UUID, if it is not the first one's
	never     bool   // gives no answer until the context ends
}

func newVCenters() *vCenters {
	return &vCenters{takes: password, connected: map[string]Connection{}, hosts: []v1alpha1.VSphereHost{
		{Name: "esx-2", Cluster: "c1", Connected: true, InMaintenance: true}, {Name: "esx-1", Cluster: "c1", Connected: true},
	}}
}

func (v *vCenters) Connect(ctx context.Context, name string, c Connection) (About, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.never {
		<-ctx.Done()
		return About{}, ctx.Err()
	}
	if v.err != nil {
		return About{}, v.err
	}
	if v.is != "" && c.InstanceUUID != "" && c.InstanceUUID != v.is {
		return About{}, &runtime.Other{Is: v.is, Was: c.InstanceUUID}
	}
	c.InstanceUUID = ""
	if v.connected[name] != c {
		delete(v.connected, name)
		v.logins++
		if c.Username != "ann" || string(c.Password) != v.takes {
			// An implementation that tells too much.
			return About{}, runtime.NewPermission(fmt.Errorf("POST https://ann:%s@vc/sdk", url.QueryEscape(string(c.Password))),
				"vCenter refuses the login of ann with %s", string(c.Password))
		}
		v.connected[name] = c
	}
	return About{Version: "8.0.3", InstanceUUID: cmp.Or(v.is, "uuid-1")}, nil
}

func (v *vCenters) Inventory(_ context.Context, name string, tenants []v1alpha1.VSphereTenant) (Inventory, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.connected[name]; !ok {
		return Inventory{}, errors.New("never connected")
	}
	v.tenants = tenants
	return Inventory{Hosts: slices.Clone(v.hosts), Places: *v.places.DeepCopy(), Marked: slices.Clone(v.marked)}, v.hostsErr
}

func (v *vCenters) Forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.connected, name)
	v.forgotten = append(v.forgotten, name)
}

// change changes them while a manager may be running.
func (v *vCenters) change(how func(*vCenters)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	how(v)
}

// told keeps what people are told, as "type reason: note".
type told struct {
	mu  sync.Mutex
	all []string
}

func (e *told) Eventf(_, _ kruntime.Object, kind, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

func (e *told) texts() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// fixture is a namespace for Secrets, a VSphereServer, and its reconciler, which is driven by hand.
type fixture struct {
	step.T
	*Reconciler
	api      client.WithWatch
	name     string
	vCenters *vCenters
	told     told
	logged   bytes.Buffer
	writes   int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	api, namespace := install.Shared(t, "release-")
	f := &fixture{T: step.T{T: t}, api: api, vCenters: newVCenters()}
	server := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{GenerateName: "vc-"}, Spec: v1alpha1.VSphereServerSpec{
		URL: "https://vc.example.org", Trust: v1alpha1.VSphereTrust{CABundle: bundle()},
		CredentialsSecretRef: v1alpha1.CredentialsSecretReference{Name: "vc-login"},
	}}
	f.Must(api.Create(t.Context(), server))
	f.name = server.Name
	t.Cleanup(func() { // no other test's manager is to find it
		if err := api.Delete(context.Background(), server); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	counting := interceptor.NewClient(api, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			f.writes++
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	})
	f.Reconciler = &Reconciler{
		Client: counting, Live: api, Namespace: namespace, Servers: f.vCenters, Events: &f.told,
		Now: time.Now, Call: 100 * time.Millisecond,
	}
	t.Cleanup(f.keepsSecrets)
	return f
}

// bundle is a certificate in PEM.
var bundle = sync.OnceValue(func() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
})

// secret makes or changes the Secret.
func (f *fixture) secret(data map[string]string) {
	f.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "vc-login"}, StringData: data}
	err := f.api.Create(f.Context(), s)
	if apierrors.IsAlreadyExists(err) {
		s.Data, s.StringData = map[string][]byte{}, nil
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		err = f.api.Update(f.Context(), s)
	}
	f.Must(err)
}

func login(password string) map[string]string {
	return map[string]string{"username": "ann", "password": password}
}

// pass has the reconciler look once.
func (f *fixture) pass() ctrl.Result {
	f.Helper()
	result, err := f.Reconcile(f.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: f.name}})
	if err != nil {
		fmt.Fprintln(&f.logged, err)
	} else if result.RequeueAfter == 0 && f.lookup() != nil {
		f.Error("nobody looks again")
	}
	return result
}

func (f *fixture) lookup() *v1alpha1.VSphereServer {
	server := &v1alpha1.VSphereServer{}
	err := f.api.Get(context.Background(), types.NamespacedName{Name: f.name}, server)
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.Must(err)
	return server
}

// ready gives status, reason and message of Ready.
func (f *fixture) ready() string {
	server := f.lookup()
	c := meta.FindStatusCondition(server.Status.Conditions, "Ready")
	if c == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, strings.ReplaceAll(c.Message, f.Namespace, "NS")))
}

func (f *fixture) is(want string) {
	f.Helper()
	if got := f.ready(); got != want {
		f.Errorf("it is %q and not %q", got, want)
	}
}

// keepsSecrets looks for the passwords in everything that people can read.
func (f *fixture) keepsSecrets() {
	text := strings.Join(f.told.texts(), "\n") + f.logged.String()
	if server := f.lookup(); server != nil {
		text += fmt.Sprintf("%+v", server)
	}
	for _, p := range []string{password, changed} {
		for _, form := range []string{p, url.QueryEscape(p), url.PathEscape(p)} {
			if strings.Contains(text, form) {
				f.Errorf("people can read a password: %s", text)
			}
		}
	}
}
