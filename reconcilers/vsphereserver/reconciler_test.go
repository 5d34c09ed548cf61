package vsphereserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

func TestConnected(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	f.pass()
	f.is("True Connected")
	status := f.lookup().Status
	want := v1alpha1.VSphereServerStatus{
		ObservedGeneration: 1, Version: "8.0.3", InstanceUUID: "uuid-1", Conditions: status.Conditions,
		Hosts: []v1alpha1.VSphereHost{
			{Name: "esx-1", Cluster: "c1", Connected: true}, {Name: "esx-2", Cluster: "c1", Connected: true, InMaintenance: true},
		},
		Inventory: &v1alpha1.VSphereInventory{},
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if got := f.vCenters.connected[f.name]; got.URL != "https://vc.example.org" || got.CABundle != bundle() || got.Thumbprint != "" {
		t.Errorf("connected with %+v", got)
	}
	if got := f.told.texts(); !slices.Equal(got, []string{"Normal Connected: connected to vCenter 8.0.3"}) {
		t.Errorf("people were told %q", got)
	}
	for range 3 {
		f.vCenters.hosts[0], f.vCenters.hosts[1] = f.vCenters.hosts[1], f.vCenters.hosts[0] // in any order
		if result := f.pass(); result.RequeueAfter != time.Minute {
			t.Errorf("looks again after %s", result.RequeueAfter)
		}
	}
	if f.writes != 1 || len(f.told.texts()) != 1 || f.vCenters.logins != 1 {
		t.Errorf("a steady state: %d writes, %d logins, events %q", f.writes, f.vCenters.logins, f.told.texts())
	}
}

func TestHostsChange(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	f.pass()
	f.vCenters.hosts = []v1alpha1.VSphereHost{
		{Name: "esx-3"}, {Name: "esx-1", Cluster: "c2", Connected: true}, {Name: "esx-1", Cluster: "c1"},
	}
	f.pass()
	want := []v1alpha1.VSphereHost{{Name: "esx-1", Cluster: "c1"}, {Name: "esx-3"}}
	if diff := cmp.Diff(want, f.lookup().Status.Hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	f.vCenters.hosts = nil
	for i := range maxHosts + 1 {
		f.vCenters.hosts = append(f.vCenters.hosts, v1alpha1.VSphereHost{Name: fmt.Sprintf("esx-%d", i)})
	}
	f.pass()
	if got := len(f.lookup().Status.Hosts); got != maxHosts {
		t.Errorf("%d hosts", got)
	}
	f.vCenters.hosts = nil
	f.pass()
	if got := f.lookup().Status.Hosts; len(got) != 0 || f.writes != 4 || len(f.told.texts()) != 1 {
		t.Errorf("hosts %v, %d writes, events %q", got, f.writes, f.told.texts())
	}
}

// Lists are in order and have each path once; one that is cut says so, and what has not changed is not written.
func TestInventory(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	server := f.lookup()
	server.Spec.Tenants = []v1alpha1.VSphereTenant{{Name: "a", Namespaces: v1alpha1.TenantNamespaces{Names: []string{"a"}}}}
	f.Must(f.api.Update(t.Context(), server))
	var many []string
	for i := range maxPlaces {
		many = append(many, fmt.Sprintf("/dc/network/%03d", maxPlaces-i))
	}
	f.vCenters.places = v1alpha1.VSphereInventory{
		Templates: v1alpha1.VSpherePlaces{Complete: true, Paths: []string{"/dc/vm/b", "/dc/vm/a", "/dc/vm/b"}},
		Folders:   v1alpha1.VSpherePlaces{Paths: []string{"/dc/vm"}},
		Networks:  v1alpha1.VSpherePlaces{Complete: true, Paths: append(many, many[0])},
	}
	f.pass()
	got := f.lookup().Status.Inventory
	want := v1alpha1.VSpherePlaces{Complete: true, Paths: []string{"/dc/vm/a", "/dc/vm/b"}}
	if diff := cmp.Diff(want, got.Templates); diff != "" {
		t.Errorf("templates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(server.Spec.Tenants, f.vCenters.tenants); diff != "" || got.Folders.Complete || !got.Networks.Complete {
		t.Errorf("asked for %+v, got %+v", f.vCenters.tenants, got)
	}
	slices.Reverse(f.vCenters.places.Networks.Paths)
	f.pass()
	if f.writes != 1 {
		t.Errorf("%d writes", f.writes)
	}
	f.vCenters.places.Networks.Paths = append(f.vCenters.places.Networks.Paths, "/dc/network/x")
	f.pass()
	if got := f.lookup().Status.Inventory.Networks; got.Complete || len(got.Paths) != maxPlaces || f.writes != 2 {
		t.Errorf("%d paths, complete: %v, %d writes", len(got.Paths), got.Complete, f.writes)
	}
}

// The Secret may be incomplete or missing, and come later; without it nobody stays connected.
func TestSecrets(t *testing.T) {
	f := newFixture(t)
	for _, step := range []struct {
		data map[string]string
		want string
	}{
		{nil, "False SecretNotFound spec.credentialsSecretRef: Secret NS/vc-login does not exist"},
		{map[string]string{"password": password}, "False SecretIncomplete spec.credentialsSecretRef: Secret NS/vc-login has no value for key username"},
		{map[string]string{"username": "ann"}, "False SecretIncomplete spec.credentialsSecretRef: Secret NS/vc-login has no value for key password"},
		{map[string]string{"username": "ann", "password": ""}, "False SecretIncomplete spec.credentialsSecretRef: Secret NS/vc-login has no value for key password"},
		{login(password), "True Connected"},
		{login(changed), "False LoginRefused spec.credentialsSecretRef: vCenter refuses the login of ann with (hidden)"},
		{login(password), "True Connected"},
		{map[string]string{"username": "ann"}, "False SecretIncomplete spec.credentialsSecretRef: Secret NS/vc-login has no value for key password"},
	} {
		if step.data != nil {
			f.secret(step.data)
		}
		f.pass()
		f.is(step.want)
		if _, connected := f.vCenters.connected[f.name]; connected != strings.HasPrefix(step.want, "True") {
			t.Errorf("%s: connected is %v", step.want, connected)
		}
	}
	if got := f.lookup().Status; got.Version != "8.0.3" || len(got.Hosts) != 2 {
		t.Errorf("what was last seen is gone: %+v", got)
	}
	if got := f.told.texts(); len(got) != 7 { // one for each change of the reason or the message
		t.Errorf("people were told %q", got)
	}
}

// A password that was read from a file with a line break at its end is refused, and the condition says why that may be.
func TestPasswordWithALineBreak(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password + "\n"))
	f.pass()
	f.is("False LoginRefused spec.credentialsSecretRef: vCenter refuses the login of ann with (hidden); " +
		"the value of key password begins or ends with white space, such as a line break")
}

// The vCenter's user gets another password, and then the Secret.
func TestRotation(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	f.pass()
	f.vCenters.takes = changed
	f.pass()
	f.is("True Connected") // the session goes on
	f.secret(login(changed))
	f.pass()
	f.is("True Connected")
	if got := f.vCenters.connected[f.name].Password; string(got) != changed || f.vCenters.logins != 2 || f.writes != 1 {
		t.Errorf("%d logins, %d writes", f.vCenters.logins, f.writes)
	}
}

func TestTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		connect, hosts error
		want           string
		soon           bool // tried again with growing pauses, and otherwise at the next look
	}{
		"away":              {runtime.NewUnavailable(errors.New("dial tcp"), "vCenter vc did not answer"), nil, "False RuntimeUnavailable spec.url: vCenter vc did not answer", true},
		"a refused login":   {runtime.NewPermission(nil, "the account is locked"), nil, "False LoginRefused spec.credentialsSecretRef: the account is locked", false},
		"a missing right":   {nil, runtime.NewPermission(nil, "lacks System.View"), "False PermissionDenied lacks System.View", false},
		"hosts not to read": {nil, errors.New("odd"), "False RuntimeFailed odd", true},
		"another authority": {
			runtime.NewUnavailable(fmt.Errorf("post: %w", x509.UnknownAuthorityError{}), "not signed by the CA bundle"), nil,
			"False CertificateNotTrusted spec.trust.caBundle: not signed by the CA bundle", false,
		},
		"another host": {runtime.NewUnavailable(x509.HostnameError{Certificate: &x509.Certificate{}}, "for another host"), nil, "False CertificateNotTrusted spec.trust.caBundle: for another host", false},
		"expired":      {runtime.NewUnavailable(x509.CertificateInvalidError{Reason: x509.Expired}, "has expired"), nil, "False CertificateNotTrusted spec.trust.caBundle: has expired", false},
		"by its handshake": {
			runtime.NewUnavailable(&tls.CertificateVerificationError{Err: errors.New("another thumbprint")}, "another thumbprint"), nil,
			"False CertificateNotTrusted spec.trust.caBundle: another thumbprint", false,
		},
		"something that tells too much": {fmt.Errorf("https://ann:%s@vc", password), nil, "False RuntimeFailed https://ann:(hidden)@vc", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.secret(login(password))
			f.vCenters.err, f.vCenters.hostsErr = tc.connect, tc.hosts
			for range 2 {
				result := f.pass()
				f.is(tc.want)
				if soon := f.logged.Len() > 0; soon != tc.soon || !soon && result.RequeueAfter != time.Minute {
					t.Errorf("tried again after %+v, errors %s", result, f.logged.String())
				}
			}
			if f.writes != 1 || len(f.told.texts()) != 1 || !strings.HasPrefix(f.told.texts()[0], "Warning ") {
				t.Errorf("%d writes, events %q", f.writes, f.told.texts())
			}
			f.vCenters.err, f.vCenters.hostsErr = nil, nil
			f.pass()
			f.is("True Connected")
		})
	}
}

// A vCenter that is another one than before is used once an administrator accepts it.
func TestAnotherVCenter(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	f.pass()
	f.vCenters.is = "uuid-2"
	f.pass()
	f.is("False OtherVCenter spec.url: it leads to another vCenter than before, so nothing is sent to it: its instance UUID is uuid-2, and was uuid-1; " +
		"to use it: kubectl annotate --overwrite vsphereservers " + f.name + " sallyport.dev/accept-vcenter=uuid-2")
	if got := f.lookup().Status.InstanceUUID; got != "uuid-1" {
		t.Errorf("the status has %s", got)
	}
	server := f.lookup()
	server.Annotations = map[string]string{v1alpha1.AnnotationAcceptVCenter: "uuid-2"}
	f.Must(f.api.Update(f.Context(), server))
	f.pass()
	f.is("True Connected")
	if got := f.lookup().Status.InstanceUUID; got != "uuid-2" {
		t.Errorf("the status has %s", got)
	}
}

// What was seen of a vCenter that goes away stays, and nothing waits for one that hangs.
func TestAwayAndBack(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	f.pass()
	seen := f.lookup().Status
	f.vCenters.never = true
	f.pass()
	f.is("False RuntimeUnavailable spec.url: the runtime did not answer in time")
	away := f.lookup().Status
	if diff := cmp.Diff(seen.Hosts, away.Hosts); diff != "" || away.Version != seen.Version {
		t.Errorf("what was seen has changed: %+v", away)
	}
	f.vCenters.never = false
	f.pass()
	f.is("True Connected")
	if len(f.vCenters.forgotten) != 0 || f.vCenters.logins != 1 {
		t.Errorf("the session was given up: %+v", f.vCenters)
	}
}

func TestTrustThatCannotBeUsed(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	server := f.lookup()
	server.Spec.Trust.CABundle = "-----BEGIN CERTIFICATE-----\nnot base64\n"
	f.Must(f.api.Update(t.Context(), server))
	f.pass()
	f.is("False TrustInvalid spec.trust.caBundle: it contains no readable PEM certificate")
	server = f.lookup()
	server.Spec.Trust = v1alpha1.VSphereTrust{Thumbprint: "ab" + strings.Repeat(":0F", 31)}
	f.Must(f.api.Update(t.Context(), server))
	f.pass()
	f.is("True Connected")
	if got := f.lookup(); got.Status.ObservedGeneration != got.Generation || f.vCenters.connected[f.name].Thumbprint != server.Spec.Trust.Thumbprint {
		t.Errorf("connected with %+v, status %+v", f.vCenters.connected[f.name], got.Status)
	}
}

func TestSecretThatMayNotBeRead(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	f.pass()
	f.Live = interceptor.NewClient(f.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Secret); ok {
				return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New("no role"))
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	f.pass()
	f.is("Unknown SecretUnreadable spec.credentialsSecretRef: reading Secret NS/vc-login failed: Forbidden")
	if len(f.vCenters.forgotten) != 0 {
		t.Error("the session was given up, although nothing is known")
	}
}

func TestDeletion(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	f.pass()
	f.Must(f.api.Delete(t.Context(), f.lookup()))
	if result := f.pass(); result != (ctrl.Result{}) || !slices.Equal(f.vCenters.forgotten, []string{f.name}) || len(f.vCenters.connected) != 0 {
		t.Errorf("got %+v, forgotten %v", result, f.vCenters.forgotten)
	}
}

func TestPasswordsDoNotShow(t *testing.T) {
	c := Connection{URL: "https://vc", Password: password}
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprint(c), fmt.Sprintf("%+v %#v %s %q %x", c, &c, c.Password, c.Password, c.Password), string(encoded),
	} {
		if strings.Contains(text, "hunter") || strings.Contains(text, fmt.Sprintf("%x", "hunter")) {
			t.Errorf("it shows: %s", text)
		}
	}
}

// In a manager: what changes is looked at at once, long before the next look is due, and Secrets of other namespaces and names
// do not matter.
func TestWatches(t *testing.T) {
	f := newFixture(t)
	skip := true
	mgr, err := ctrl.NewManager(env.Shared(t).Config, ctrl.Options{
		Scheme: f.api.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	f.Must(err)
	f.Client, f.Live, f.Resync, f.Call = mgr.GetClient(), mgr.GetAPIReader(), time.Hour, 0
	f.Must(f.SetupWithManager(mgr))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() { f.Must(<-ended) })
	await := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(step.Patience); f.ready() != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it is %q and not %q", f.ready(), want)
			}
		}
	}
	await("False SecretNotFound spec.credentialsSecretRef: Secret NS/vc-login does not exist")
	f.secret(login(changed))
	await("False LoginRefused spec.credentialsSecretRef: vCenter refuses the login of ann with (hidden)")
	f.secret(login(password))
	await("True Connected")
	f.vCenters.change(func(v *vCenters) { v.takes = changed })
	f.secret(login(changed))
	server := f.lookup()
	server.Spec.URL = "https://vc.example.org/sdk"
	f.Must(f.api.Update(t.Context(), server))
	for deadline := time.Now().Add(step.Patience); f.lookup().Status.ObservedGeneration != server.Generation; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new URL was not seen")
		}
	}
	await("True Connected")
	f.vCenters.change(func(v *vCenters) { v.err = runtime.NewUnavailable(nil, "vCenter vc did not answer") })
	f.secret(map[string]string{"username": "ann", "password": changed, "more": "bytes"})
	await("False RuntimeUnavailable spec.url: vCenter vc did not answer")
	f.vCenters.change(func(v *vCenters) { v.err = nil }) // nothing happens in the cluster now: it is tried again
	await("True Connected")
	f.Must(f.api.Delete(t.Context(), &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: f.name}}))
	for deadline := time.Now().Add(step.Patience); ; time.Sleep(10 * time.Millisecond) {
		var gone bool
		f.vCenters.change(func(v *vCenters) { gone = slices.Contains(v.forgotten, f.name) })
		if gone {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the deleted one is still connected")
		}
	}
}
