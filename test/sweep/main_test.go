//go:build !race

package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	crds, err := charts.CRDs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	env.Main(m, env.Options{CRDs: crds})
}

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

// nothingElse is the source of facts beyond those of the pass. The shipped policies need none.
type nothingElse struct{}

func (n nothingElse) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return n }

func (nothingElse) Read(context.Context, engine.Query) (engine.Answer, error) {
	return engine.Answer{}, errors.New("no policy asks beyond the pass")
}

// arbiter asks the shipped policies.
type arbiter struct{ gate *webhooks.Gate }

func newArbiter(t *testing.T) arbiter {
	t.Helper()
	objects, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	set, err := catalog.Compile(objects)
	if err != nil {
		t.Fatal(err)
	}
	recorder := webhooks.NewRecorder(prometheus.NewRegistry(), nil, false)
	t.Cleanup(func() { recorder.Close(time.Second) })
	return arbiter{webhooks.NewGate(set, nothingElse{}, recorder, time.Now)}
}

func (a arbiter) Arbitrate(
	ctx context.Context, o *v1alpha1.VirtualMachineOperation, vm *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (operation.Ruling, error) {
	ruling, err := a.gate.Arbitrate(ctx, o, vm, unfinished)
	return operation.Ruling(ruling), err
}
