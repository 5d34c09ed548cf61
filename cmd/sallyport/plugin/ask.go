package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// verdict is the response of the API server to a request.
type verdict string

const (
	accepted verdict = "accepted"
	refused  verdict = "refused"
	// undecided means that the request is denied only because policies failed to decide.
	undecided verdict = "undecided"
	// forbidden means that RBAC denies the request, so no policy was evaluated.
	forbidden verdict = "forbidden"
	// unknown means that the API server did not respond, or not to this request.
	unknown verdict = "unknown"
)

// answer is the response of the API server to one request.
type answer struct {
	// Type is the requested operation: one of a machine, the deletion of the object, or Scale.
	Type  v1alpha1.OperationType `json:"type"`
	Force bool                   `json:"force"`
	// Replicas is the requested number of replicas if Type is Scale.
	Replicas *int64 `json:"replicas,omitempty"`
	// Verdict is accepted, refused, undecided, forbidden or unknown.
	Verdict verdict `json:"verdict"`
	// Reasons has at least one entry unless the verdict is accepted.
	Reasons []objection `json:"reasons,omitempty"`
	// Warnings are the warnings of the API server.
	Warnings []objection `json:"warnings,omitempty"`
}

// objection is one reason.
type objection struct {
	// Policy is the policy that denies or warns. It is empty if the reason is not from a policy.
	Policy  string `json:"policy,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	// Cause is the message without the object and the way out, if the policy gives it.
	Cause string `json:"cause,omitempty"`
}

// scaling is the type of requests for another number of replicas.
const scaling v1alpha1.OperationType = "Scale"

// asked are the requests that `why` tries on a VirtualMachine: all operations, and its deletion.
func asked() []answer {
	var all []answer
	for _, form := range v1alpha1.OperationForms() {
		all = append(all, answer{Type: form.Type, Force: form.Force})
	}
	return append(all, answer{Type: v1alpha1.OperationDelete})
}

// subject is an object that requests are tried on.
type subject interface {
	// try makes a request as a dry run.
	try(ctx context.Context, request *answer) error
	// right is the permission that a request needs.
	right(request *answer) *authorizationv1.ResourceAttributes
}

// ask sends all requests concurrently as dry runs.
func (c *cluster) ask(ctx context.Context, about subject, requests []answer) []answer {
	answers := slices.Clone(requests)
	var all sync.WaitGroup
	for i := range answers {
		a := &answers[i]
		all.Go(func() {
			ctx, warned := keepWarnings(ctx)
			err := about.try(ctx, a)
			a.Verdict, a.Reasons = parseResponse(err)
			if a.Verdict == refused && apierrors.IsForbidden(err) && a.Reasons[0].Policy == "" && c.lacks(ctx, about.right(a)) {
				a.Verdict = forbidden
			}
			for _, text := range warned.texts {
				a.Warnings = append(a.Warnings, objectionIn(text))
			}
		})
	}
	all.Wait()
	return answers
}

// wayOut prints the operations that all policies allow, if several policies denied one. Each denial only lists what its own policy
// allows.
func (p *plugin) wayOut(ctx context.Context, c *cluster, name string, err error) {
	said, reasons := parseResponse(err)
	several := slices.ContainsFunc(reasons, func(o objection) bool { return o.Policy != reasons[0].Policy })
	machine := &v1alpha1.VirtualMachine{}
	if said != refused || !several || c.Get(ctx, c.key(name), machine) != nil {
		return
	}
	var commands []string
	operations := slices.DeleteFunc(asked(), func(a answer) bool { return a.Type == v1alpha1.OperationDelete })
	for _, a := range c.ask(ctx, &machineSubject{c, machine}, operations) {
		switch a.Verdict {
		case accepted:
			commands = append(commands, a.command())
		case unknown:
			return
		}
	}
	fmt.Fprintf(p.ErrOut, "Allowed now by all policies: %s\n", cmp.Or(strings.Join(commands, ", "), "none"))
}

// machineSubject is a VirtualMachine, whose operations are tried.
type machineSubject struct {
	*cluster
	machine *v1alpha1.VirtualMachine
}

func (s *machineSubject) try(ctx context.Context, a *answer) error {
	if a.Type == v1alpha1.OperationDelete {
		this := client.Preconditions{UID: new(s.machine.UID)}
		return s.Delete(ctx, s.machine.DeepCopy(), client.DryRunAll, this)
	}
	spec := v1alpha1.VirtualMachineOperationSpec{Type: a.Type, Force: a.Force}
	return s.Create(ctx, newOperation(s.machine.Namespace, s.machine.Name, spec), client.DryRunAll)
}

func (s *machineSubject) right(a *answer) *authorizationv1.ResourceAttributes {
	if a.Type == v1alpha1.OperationDelete {
		return &authorizationv1.ResourceAttributes{
			Verb: "delete", Group: v1alpha1.GroupName, Resource: "virtualmachines", Namespace: s.machine.Namespace, Name: s.machine.Name,
		}
	}
	return &authorizationv1.ResourceAttributes{
		Verb: "create", Group: v1alpha1.GroupName, Resource: "virtualmachineoperations", Namespace: s.machine.Namespace,
	}
}

// may reports whether the user has a permission.
func (c *cluster) may(ctx context.Context, right *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: right}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("checking your permissions: %w", err)
	}
	return review.Status.Allowed, nil
}

// lacks reports whether the user certainly lacks a permission.
func (c *cluster) lacks(ctx context.Context, right *authorizationv1.ResourceAttributes) bool {
	allowed, err := c.may(ctx, right)
	return err == nil && !allowed
}

// noDryRun is part of the error of the API server if a webhook does not support dry runs.
const noDryRun = "does not support dry run"

// parseResponse returns the verdict and the reasons of a response: the causes from policies, otherwise the message.
func parseResponse(err error) (verdict, []objection) {
	if err == nil {
		return accepted, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unknown, []objection{{Message: err.Error()}}
	}
	s := status.Status()
	found := ofPolicies(&s)
	switch {
	case found == nil && (passing(err) || apierrors.IsBadRequest(err) && strings.Contains(s.Message, noDryRun)):
		return unknown, []objection{{Reason: string(s.Reason), Message: s.Message}}
	case found == nil:
		return refused, []objection{{Reason: string(s.Reason), Message: s.Message}}
	case slices.ContainsFunc(found, func(o objection) bool { return !o.undecided() }):
		return refused, found
	}
	return undecided, found
}

// ofPolicies returns the causes from policies in a denial.
func ofPolicies(s *metav1.Status) []objection {
	var found []objection
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if policy, reason, is := strings.Cut(string(cause.Type), "/"); is {
				message := strings.TrimPrefix(cause.Message, fmt.Sprintf("[%s] ", cause.Type))
				found = append(found, objection{Policy: policy, Reason: reason, Message: message})
			} else if cause.Type == decision.CauseShort && len(found) > 0 {
				found[len(found)-1].Cause = cause.Message
			}
		}
	}
	return found
}

// objectionIn parses a warning of the form "[policy/Reason] message". Any other warning is a message.
func objectionIn(text string) objection {
	rest, bracket := strings.CutPrefix(text, "[")
	who, message, closed := strings.Cut(rest, "] ")
	policy, reason, slash := strings.Cut(who, "/")
	if !bracket || !closed || !slash {
		return objection{Message: text}
	}
	return objection{Policy: policy, Reason: reason, Message: message}
}

// undecided reports whether the policy failed to decide.
func (o objection) undecided() bool {
	return o.Policy != "" && engine.IsCause(o.Reason)
}
