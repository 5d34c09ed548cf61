//go:build !race

package vcenter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/double/vcsim"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/step"
)

// stack is what all tests of this package share.
var stack struct {
	plane     *env.ControlPlane
	vcenter   *vcsim.VCenter
	sallyport *install.Sallyport
	client    client.WithWatch
	options   install.Options
	witness   *witness
	// What the manager writes.
	logs, records *os.File
}

// namespace is the team's that may use the vCenter.
const namespace = "collisions"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "sallyport-vcenter-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctrl.SetLogger(klog.NewKlogr())
	code = 1
	if err = start(context.Background(), dir); err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, stop(), secrets.leaks()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 && stack.logs != nil {
		text, _ := os.ReadFile(stack.logs.Name())
		fmt.Fprintf(os.Stderr, "the manager's log:\n%s", text)
	}
	return code
}

func start(ctx context.Context, dir string) (err error) {
	if stack.logs, err = os.Create(filepath.Join(dir, "manager.log")); err != nil {
		return err
	}
	if stack.records, err = os.Create(filepath.Join(dir, "records.json")); err != nil {
		return err
	}
	binary, err := install.Build(ctx, dir, "sallyport.dev/sallyport/cmd/sallyport")
	if err != nil {
		return err
	}
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	if stack.plane, err = env.Start(ctx, env.Options{CRDs: crds}); err != nil {
		return err
	}
	if stack.vcenter, err = vcsim.Start(vcsim.Options{Step: 10 * time.Millisecond}); err != nil {
		return err
	}
	if err = connect(); err != nil {
		return err
	}
	if stack.witness, err = watchAll(ctx, stack.client); err != nil {
		return err
	}
	stack.options = install.Options{
		Values: []string{
			"rbac.cloudInitSecrets[0]=*", "templates.forbiddenRanges={192.0.2.0/24}", // images are on loopback
			"policies.placement-migration.parameters.maxPerHost=0", // many machines collide on one host at a time
		},
		Binary: binary, Flags: []string{"--poll-interval", "200ms"}, Logs: stack.logs, Records: stack.records,
	}
	if stack.sallyport, err = install.Start(ctx, stack.plane, stack.options); err != nil {
		return err
	}
	return declare(ctx)
}

// stop ends what was started.
func stop() (err error) {
	if stack.sallyport != nil {
		err = stack.sallyport.Remove()
	}
	if stack.vcenter != nil {
		if n := stack.vcenter.Sessions(); n != 0 && err == nil {
			err = fmt.Errorf("%d sessions are left on the vCenter after the manager's end", n)
		}
		stack.vcenter.Close()
	}
	if stack.witness != nil {
		stack.witness.end()
	}
	if stack.plane != nil {
		err = errors.Join(err, stack.plane.Stop())
	}
	return err
}

// connect makes the client.
func connect() (err error) {
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := rest.CopyConfig(stack.plane.Config)
	config.QPS = -1
	stack.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	return err
}

// declare declares the vCenter and the namespace that may use it, and waits until it is connected.
func declare(ctx context.Context) error {
	password, _ := stack.vcenter.User().Password()
	secrets.add(password)
	server := &v1alpha1.VSphereServer{
		ObjectMeta: metav1.ObjectMeta{Name: "vc"},
		Spec: v1alpha1.VSphereServerSpec{
			URL: stack.vcenter.URL(), Trust: v1alpha1.VSphereTrust{CABundle: string(stack.vcenter.CABundle())},
			CredentialsSecretRef: v1alpha1.CredentialsSecretReference{Name: "vc-login"},
			Tenants: []v1alpha1.VSphereTenant{{
				Name: "team", Namespaces: v1alpha1.TenantNamespaces{Names: []string{namespace}}, Folders: []v1alpha1.InventoryPath{"/DC0/vm"}, Adopt: true,
			}},
		},
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		server,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "vc-login"},
			StringData: map[string]string{"username": stack.vcenter.User().Username(), "password": password},
		},
	} {
		if err := stack.client.Create(ctx, object); err != nil {
			return err
		}
	}
	err := step.Await(ctx, func(ctx context.Context) (bool, error) {
		err := stack.client.Get(ctx, client.ObjectKeyFromObject(server), server)
		return err == nil && meta.IsStatusConditionTrue(server.Status.Conditions, string(v1alpha1.ConditionReady)), err
	})
	if err != nil {
		return fmt.Errorf("waiting until VSphereServer %s is connected: %w; %+v", server.Name, err, server.Status)
	}
	return nil
}
