package main

import (
	"context"
	"errors"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// verdict is what the API server says to a request.
type verdict string

const (
	accepted verdict = "accepted"
	refused  verdict = "refused"
	unknown  verdict = "unknown"
)

// answer is what the API server says to one request.
type answer struct {
	// Type is what is asked for, Delete being the deletion of the VirtualMachine.
	Type  v1alpha1.OperationType `json:"type"`
	Force bool                   `json:"force"`
	// Verdict is accepted, refused, or unknown if the API server could not say.
	Verdict verdict `json:"verdict"`
	// Reasons are why not, at least one unless it is accepted.
	Reasons []objection `json:"reasons,omitempty"`
}

// objection is one reason.
type objection struct {
	// Policy that refuses; empty if it was no policy of Sallyport.
	Policy  string `json:"policy,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// asked are the requests that `why` tries, the gentle ones first. There is no forced Start.
var asked = []answer{
	{Type: v1alpha1.OperationStart},
	{Type: v1alpha1.OperationStop}, {Type: v1alpha1.OperationStop, Force: true},
	{Type: v1alpha1.OperationRestart}, {Type: v1alpha1.OperationRestart, Force: true},
	{Type: v1alpha1.OperationMigrate}, {Type: v1alpha1.OperationMigrate, Force: true},
	{Type: v1alpha1.OperationEvict}, {Type: v1alpha1.OperationEvict, Force: true},
	{Type: v1alpha1.OperationDelete},
}

// ask has the API server judge each request as a dry run, all at once.
func ask(ctx context.Context, c *cluster, machine *v1alpha1.VirtualMachine) []answer {
	answers := append([]answer{}, asked...)
	var all sync.WaitGroup
	for i := range answers {
		a := &answers[i]
		all.Go(func() { a.Verdict, a.Reasons = judge(try(ctx, c, machine, a)) })
	}
	all.Wait()
	return answers
}

func try(ctx context.Context, c *cluster, machine *v1alpha1.VirtualMachine, a *answer) error {
	if a.Type == v1alpha1.OperationDelete {
		this := client.Preconditions{UID: new(machine.UID)}
		return c.Delete(ctx, machine.DeepCopy(), client.DryRunAll, this)
	}
	spec := v1alpha1.VirtualMachineOperationSpec{Type: a.Type, Force: a.Force}
	return c.Create(ctx, newOperation(machine.Namespace, machine.Name, spec), client.DryRunAll)
}

// judge reads a refusal: its causes if policies of Sallyport gave them, else its message.
func judge(err error) (verdict, []objection) {
	if err == nil {
		return accepted, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unknown, []objection{{Message: err.Error()}}
	}
	s := status.Status()
	said := refused
	if passing(err) {
		said = unknown
	}
	var found []objection
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if o, ours := ofPolicy(cause); ours {
				found = append(found, o)
			}
		}
	}
	if found == nil {
		found = []objection{{Reason: string(s.Reason), Message: s.Message}}
	}
	return said, found
}

// ofPolicy reads a cause as the webhooks write it, its message being "[policy/Reason] message".
func ofPolicy(cause metav1.StatusCause) (objection, bool) {
	rest, bracket := strings.CutPrefix(cause.Message, "[")
	policy, message, ours := strings.Cut(rest, "/"+string(cause.Type)+"] ")
	return objection{Policy: policy, Reason: string(cause.Type), Message: message}, bracket && ours
}
