//go:build !race

package vcenter

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// site is a vCenter of one test, its VSphereServer and the namespace that may use it, all of the same name.
type site struct {
	step.T
	name     string
	vcenter  *vcsim.VCenter
	user     string
	password string
}

var sites atomic.Int32

// newSite starts a vCenter for a test. Nothing is declared of it yet but the namespace.
func newSite(t *testing.T) *site {
	t.Helper()
	stack.Up(t)
	n := sites.Add(1)
	s := &site{T: step.T{T: t}, name: fmt.Sprintf("site-%d", n), user: "sallyport@vsphere.local", password: fmt.Sprintf("hunter2 /&%%secret-%d", n)}
	s.vcenter = s.start()
	secrets.add(s.password)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
	return s
}

// start starts a vCenter that lets the site's user in.
func (s *site) start(id ...string) *vcsim.VCenter {
	s.Helper()
	v, err := vcsim.Start(vcsim.Options{Step: 10 * time.Millisecond, Datastores: 2, InstanceUUID: strings.Join(id, "")})
	s.Must(err)
	v.SetUser(url.UserPassword(s.user, s.password))
	s.Cleanup(v.Close)
	return v
}

func (s *site) create(object client.Object) {
	s.Helper()
	s.Must(stack.Client.Create(s.Context(), object))
}

// declare makes the VSphereServer, whose session is ended with the test.
func (s *site) declare(change ...func(*v1alpha1.VSphereServerSpec)) *v1alpha1.VSphereServer {
	s.Helper()
	server := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: v1alpha1.VSphereServerSpec{
		URL: s.vcenter.URL(), Trust: v1alpha1.VSphereTrust{CABundle: string(s.vcenter.CABundle())},
		CredentialsSecretRef: v1alpha1.CredentialsSecretReference{Name: s.name + "-login"},
		Tenants: []v1alpha1.VSphereTenant{{
			Name: "team", Namespaces: v1alpha1.TenantNamespaces{Names: []string{s.name}}, Folders: []v1alpha1.InventoryPath{"/DC0/vm"}, Adopt: true,
		}},
	}}
	for _, c := range change {
		c(&server.Spec)
	}
	s.create(server)
	s.Cleanup(func() {
		_ = stack.Client.Delete(context.WithoutCancel(s.Context()), server)
		s.until("the manager has logged out", func() string { return fmt.Sprintf("%d sessions", s.vcenter.Sessions()) }, "0 sessions")
	})
	return server
}

// ready gives a site whose vCenter is connected.
func (s *site) ready() *site {
	s.Helper()
	s.login(map[string]string{"username": s.user, "password": s.password})
	s.shows(s.declare(), connected)
	return s
}

// login makes the Secret, or changes it.
func (s *site) login(data map[string]string) {
	s.Helper()
	secret := s.secret()
	secret.StringData = data
	if err := stack.Client.Create(s.Context(), secret); !apierrors.IsAlreadyExists(err) {
		s.Must(err)
		return
	}
	s.Must(stack.Client.Update(s.Context(), secret))
}

func (s *site) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: s.name + "-login"}}
}

// update changes a VSphereServer or a VirtualMachine.
func update[T client.Object](s *site, object T, change func(T)) {
	s.Helper()
	var err error
	_ = poll(s.Context(), func() bool {
		if err = stack.Client.Get(s.Context(), client.ObjectKeyFromObject(object), object); err == nil {
			change(object)
			err = stack.Client.Update(s.Context(), object)
		}
		return !apierrors.IsConflict(err)
	})
	s.Must(err)
}

// machine makes a machine that exists in the vCenter, and gives its path.
func (s *site) machine(name string) string {
	s.Helper()
	path, err := s.vcenter.AddMachine(name)
	s.Must(err)
	return path
}

// folder is where the simulator has its machines.
const folder = "/DC0/vm/"

// vm is a VirtualMachine that was not created yet, which adopts the machine at /DC0/vm/<name>.
func (s *site) vm(name string, change ...func(*v1alpha1.VSphereRuntime)) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}}
	vm.Spec.RunPolicy = v1alpha1.RunPolicyManual
	vm.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: s.name}, InventoryPath: folder + name,
	}
	for _, c := range change {
		c(vm.Spec.Runtime.VSphere)
	}
	return vm
}

// adopt creates the VirtualMachine.
func (s *site) adopt(vm *v1alpha1.VirtualMachine) *v1alpha1.VirtualMachine {
	s.Helper()
	s.patiently(func() error { return stack.Client.Create(s.Context(), vm) })
	return vm
}

// patiently creates something until the policies can judge it: they may not have had time, or not have seen the VSphereServer.
func (s *site) patiently(create func() error) {
	s.Helper()
	var err error
	_ = poll(s.Context(), func() bool {
		err = create()
		return err == nil || !strings.Contains(err.Error(), "VSphereServerNotFound") && !strings.Contains(err.Error(), "policy evaluation failed")
	})
	s.Must(err)
}

// remove deletes an object and returns when it is gone.
func (s *site) remove(object client.Object) {
	s.Helper()
	s.Must(stack.Client.Delete(s.Context(), object))
	s.until(object.GetName()+" is gone", func() string {
		err := stack.Client.Get(s.Context(), client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return "gone"
		}
		return fmt.Sprintf("%+v %v", conditions(object), err)
	}, "gone")
}

// What a condition Ready says, as status, reason and message.
const (
	connected = "True Connected "
	asWanted  = "True AsWanted "
)

// shows waits until the condition Ready of a VSphereServer or a VirtualMachine says that, as status, reason and message.
func (s *site) shows(object client.Object, want string) {
	s.Helper()
	s.until(fmt.Sprintf("%T %s shows it", object, object.GetName()), func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(object), object))
		ready := meta.FindStatusCondition(conditions(object), string(v1alpha1.ConditionReady))
		if ready == nil || ready.ObservedGeneration != object.GetGeneration() {
			return ""
		}
		return fmt.Sprintf("%s %s %s", ready.Status, ready.Reason, ready.Message)
	}, want)
}

// poll waits until something is so.
func poll(ctx context.Context, is func() bool) error {
	return step.Await(ctx, func(context.Context) (bool, error) { return is(), nil })
}

// tells waits until there is an event about an object, as type, reason and note.
func (s *site) tells(object client.Object, want string) {
	s.Helper()
	s.until(fmt.Sprintf("an event about %T %s says it", object, object.GetName()), func() string {
		notes := stack.witness.told(object)
		if slices.Contains(notes, want) {
			return want
		}
		return strings.Join(notes, "\n")
	}, want)
}

// warns waits until an object shows that it is not ready, and an event has said so.
func (s *site) warns(object client.Object, status, said string) {
	s.Helper()
	s.shows(object, status+" "+said)
	s.tells(object, "Warning "+said)
}

// until waits for something to be as it should.
func (s *site) until(what string, is func() string, want string) {
	s.Helper()
	var got string
	err := poll(context.WithoutCancel(s.Context()), func() bool {
		got = is()
		return got == want
	})
	if err != nil {
		s.Fatalf("waiting until %s (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

// retried returns when a VirtualMachine was looked at once more.
func (s *site) retried(vm *v1alpha1.VirtualMachine) {
	s.Helper()
	update(s, vm, func(vm *v1alpha1.VirtualMachine) { vm.Spec.RunPolicy = v1alpha1.RunPolicyAlwaysOff })
	s.until(vm.Name+" was looked at", func() string {
		s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
		return fmt.Sprint(vm.Status.ObservedGeneration)
	}, fmt.Sprint(vm.Generation))
}

func conditions(object client.Object) []metav1.Condition {
	switch o := object.(type) {
	case *v1alpha1.VSphereServer:
		return o.Status.Conditions
	case *v1alpha1.VirtualMachine:
		return o.Status.Conditions
	case *v1alpha1.VirtualMachinePool:
		return o.Status.Conditions
	case *v1alpha1.VirtualDisk:
		return o.Status.Conditions
	}
	return nil
}
