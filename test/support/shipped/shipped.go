// Package shipped asks the policies that ship, for tests of reconcilers that have no webhooks.
package shipped

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/record"
)

var set = sync.OnceValues(func() (*catalog.Set, error) {
	objects, err := policies.Shipped()
	if err != nil {
		return nil, err
	}
	return catalog.Compile(slices.DeleteFunc(objects, func(p v1alpha1.RegoPolicy) bool { return p.Name == "machines-running" }))
})

// Policies returns the policies that ship. The caller may change them.
func Policies(t testing.TB) []v1alpha1.RegoPolicy {
	t.Helper()
	objects, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// Default returns the policies that the chart ships with its default values.
func Default(t testing.TB) []v1alpha1.RegoPolicy {
	t.Helper()
	return slices.DeleteFunc(Policies(t), func(p v1alpha1.RegoPolicy) bool {
		return p.Name == "images-children" || p.Annotations[policies.OptIn] == "true"
	})
}

// Tables are the parameters of the policies that judge operations, in which much of what they decide can be looked up. An operation is called
// as in "Stop force".
type Tables struct {
	SupersededBy map[string][]string // by the operation that holds the machine: those that take its place
	RunPolicies  map[string][]string // by run policy: the operations that it allows
	Phases       map[string][]string // by phase of the machine: the operations that it allows
}

// TablesOf reads the tables from policies.
func TablesOf(objects []v1alpha1.RegoPolicy) (t Tables, err error) {
	for _, p := range objects {
		if p.Spec.Parameters == nil || p.Name != "operations-supersede" && p.Name != "operations-applicability" {
			continue
		}
		if err := json.Unmarshal(p.Spec.Parameters.Raw, &t); err != nil {
			return t, fmt.Errorf("reading the parameters of policy %s: %w", p.Name, err)
		}
	}
	if len(t.SupersededBy) == 0 || len(t.RunPolicies) == 0 || len(t.Phases) == 0 {
		return t, fmt.Errorf("the policies have other parameters than these tables: %+v", t)
	}
	return t, nil
}

// Set returns the compiled policies that ship, without the one that denies deletions of running machines, of which many tests make some.
func Set(t testing.TB) *catalog.Set {
	t.Helper()
	policies, err := set()
	if err != nil {
		t.Fatal(err)
	}
	return policies
}

// Arbiter returns an arbiter that evaluates the policies for operations. Their facts are what the reconciler has read, and otherwise
// those of a cluster in which each node exists and is ready, no other machine is moved, and no vCenter is declared.
func Arbiter(t *testing.T) operation.Arbiter {
	t.Helper()
	policies := Set(t)
	recorder := record.NewRecorder(prometheus.NewRegistry(), nil, false)
	t.Cleanup(func() { recorder.Close(time.Second) })
	return arbiter{decision.NewDecider(policies, calm{}, recorder, time.Now)}
}

type arbiter struct{ gate *decision.Decider }

// Arbitrate judges an operation.
func (a arbiter) Arbitrate(
	ctx context.Context, o *v1alpha1.VirtualMachineOperation, vm *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (operation.Admission, error) {
	admission, err := a.gate.Arbitrate(ctx, o, vm, unfinished)
	return operation.Admission(admission), err
}

// calm is the source of facts beyond those of the pass.
type calm struct{}

// For gives itself.
func (c calm) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return c }

// Read answers what policies ask where a machine is moved.
func (calm) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	switch {
	case q.Kind == "Node" && q.Name != "":
		node, err := engine.ValueOf(map[string]any{
			"metadata": map[string]any{"name": q.Name},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		})
		return engine.Answer{Value: node, Live: true}, err
	case q.Fields["status.phase"] == string(v1alpha1.VirtualMachineMigrating), q.Kind == "VSphereServer" && q.Name == "":
		return engine.Answer{Value: engine.List(nil), Live: true}, nil
	}
	return engine.Answer{}, errors.New("no other policy asks beyond what the reconciler has read")
}
