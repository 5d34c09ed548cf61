// Package shipped asks the policies that ship, for tests of reconcilers that have no webhooks.
package shipped

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

var set = sync.OnceValues(func() (*catalog.Set, error) {
	objects, err := policies.Shipped()
	if err != nil {
		return nil, err
	}
	return catalog.Compile(objects)
})

// Arbiter gives the policies as operations are judged by them. It answers them from what the reconciler has read and from
// nothing else: they need no more.
func Arbiter(t *testing.T) operation.Arbiter {
	t.Helper()
	policies, err := set()
	if err != nil {
		t.Fatal(err)
	}
	recorder := webhooks.NewRecorder(prometheus.NewRegistry(), nil, false)
	t.Cleanup(func() { recorder.Close(time.Second) })
	return arbiter{webhooks.NewGate(policies, nothingElse{}, recorder, time.Now)}
}

type arbiter struct{ gate *webhooks.Gate }

// Arbitrate judges an operation.
func (a arbiter) Arbitrate(
	ctx context.Context, o *v1alpha1.VirtualMachineOperation, vm *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (operation.Ruling, error) {
	ruling, err := a.gate.Arbitrate(ctx, o, vm, unfinished)
	return operation.Ruling(ruling), err
}

// nothingElse is the source of facts beyond those of the pass.
type nothingElse struct{}

// For gives itself.
func (n nothingElse) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return n }

// Read answers nothing.
func (nothingElse) Read(context.Context, engine.Query) (engine.Answer, error) {
	return engine.Answer{}, errors.New("no policy asks beyond what the reconciler has read")
}
