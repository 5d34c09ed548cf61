//go:build !race

package vcenter

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/double/vcsim"
	"sallyport.dev/sallyport/test/env/install"
	testsite "sallyport.dev/sallyport/test/site"
	"sallyport.dev/sallyport/test/step"
)

// stack is what all tests of this package share.
var stack struct {
	testsite.Site
	vcenter *vcsim.VCenter
	witness *witness
}

// namespace is the team's that may use the vCenter.
const namespace = "collisions"

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m, testsite.Options{
		Values: []string{
			"rbac.cloudInitSecrets[0]=*", "templates.forbiddenRanges={192.0.2.0/24}", // images are on loopback
			"policies.placement-migration.parameters.maxPerHost=0", // many machines collide on one host at a time
		},
		Flags: []string{"--poll-interval", "200ms"}, Prepare: prepare, Ready: declare,
		After: func(context.Context) error { return secrets.leaks() },
	}))
}

// prepare starts the vCenter and the witness, and checks at the end that the manager has logged out.
func prepare(ctx context.Context, s *testsite.Site) (err error) {
	if stack.vcenter, err = vcsim.Start(vcsim.Options{Step: 10 * time.Millisecond}); err != nil {
		return err
	}
	if stack.witness, err = watchAll(ctx, s.Client); err != nil {
		return err
	}
	s.Defer(func() error {
		left := stack.vcenter.Sessions()
		stack.vcenter.Close()
		stack.witness.end()
		if left != 0 {
			return fmt.Errorf("%d sessions are left on the vCenter after the manager's end", left)
		}
		return nil
	})
	return nil
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
		if err := stack.Client.Create(ctx, object); err != nil {
			return err
		}
	}
	err := step.Await(ctx, func(ctx context.Context) (bool, error) {
		err := stack.Client.Get(ctx, client.ObjectKeyFromObject(server), server)
		return err == nil && meta.IsStatusConditionTrue(server.Status.Conditions, string(v1alpha1.ConditionReady)), err
	})
	if err != nil {
		return fmt.Errorf("waiting until VSphereServer %s is connected: %w; %+v", server.Name, err, server.Status)
	}
	return nil
}
