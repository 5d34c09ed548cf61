//go:build !race

package sweep

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

func TestMain(m *testing.M) { install.Main(m) }

// newScheme knows what is kept in an API server here.
func newScheme(t *testing.T) *kruntime.Scheme {
	t.Helper()
	scheme := kruntime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// realServer gives a client of the API server, as fast as it can be.
func realServer(t *testing.T) client.WithWatch {
	t.Helper()
	config := rest.CopyConfig(env.Shared(t).Config)
	config.QPS = -1
	api, err := client.NewWithWatch(config, client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// inMemory gives the client of what does in memory what is needed of an API server.
func inMemory(t *testing.T) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(newScheme(t)).
		WithStatusSubresource(&v1alpha1.VirtualMachine{}, &v1alpha1.VirtualMachineOperation{}, &v1alpha1.VirtualDisk{}, &v1alpha1.VSphereTemplate{}).
		WithIndex(&v1alpha1.VirtualDisk{}, v1alpha1.FieldDiskHolder, func(o client.Object) []string {
			if by := o.(*v1alpha1.VirtualDisk).Status.AttachedTo; by != nil {
				return []string{by.Name}
			}
			return nil
		}).
		WithIndex(&v1alpha1.VirtualMachineOperation{}, "spec.virtualMachineName", func(o client.Object) []string {
			return []string{o.(*v1alpha1.VirtualMachineOperation).Spec.VirtualMachineName}
		}).Build()
}
