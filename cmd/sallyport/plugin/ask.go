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
	"sallyport.dev/sallyport/webhooks/engine"
)

// verdict is what the API server says to a request.
type verdict string

const (
	accepted verdict = "accepted"
	refused  verdict = "refused"
	// undecided is refused, too, but only because policies failed to decide.
	undecided verdict = "undecided"
	// forbidden is refused, too, but because the user has not the right: no policy was asked.
	forbidden verdict = "forbidden"
	// unknown is if no answer came, or none to the question.
	unknown verdict = "unknown"
)

// answer is what the API server says to one request.
type answer struct {
	// Type is what is asked for: an operation, the deletion of the object, or another number of replicas.
	Type  v1alpha1.OperationType `json:"type"`
	Force bool                   `json:"force"`
	// Replicas is how many there would be, if Type is Scale.
	Replicas *int64 `json:"replicas,omitempty"`
	// Verdict is accepted, refused, undecided, forbidden or unknown.
	Verdict verdict `json:"verdict"`
	// Reasons are why not, at least one unless it is accepted.
	Reasons []objection `json:"reasons,omitempty"`
	// Warnings are what the API server warns of, whatever the verdict.
	Warnings []objection `json:"warnings,omitempty"`
}

// objection is one reason.
type objection struct {
	// Policy that refuses or warns; empty if it was no policy of Sallyport.
	Policy  string `json:"policy,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// scaling is the type of requests for another number of replicas.
const scaling v1alpha1.OperationType = "Scale"

// asked are the requests that `why` tries of a VirtualMachine: all operations, and its deletion.
func asked() []answer {
	var all []answer
	for _, form := range v1alpha1.OperationForms() {
		all = append(all, answer{Type: form.Type, Force: form.Force})
	}
	return append(all, answer{Type: v1alpha1.OperationDelete})
}

// subject is an object about which requests are tried.
type subject interface {
	// try makes a request as a dry run.
	try(ctx context.Context, request *answer) error
	// right is what one needs for a request.
	right(request *answer) *authorizationv1.ResourceAttributes
}

// ask has the API server judge each request as a dry run, all at once.
func (c *cluster) ask(ctx context.Context, about subject, requests []answer) []answer {
	answers := slices.Clone(requests)
	var all sync.WaitGroup
	for i := range answers {
		a := &answers[i]
		all.Go(func() {
			ctx, warned := keepWarnings(ctx)
			err := about.try(ctx, a)
			a.Verdict, a.Reasons = judge(err)
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

// wayOut tells which operations all policies would accept, if several have refused one: each names what it would accept itself.
func (p *plugin) wayOut(ctx context.Context, c *cluster, name string, err error) {
	said, reasons := judge(err)
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
	fmt.Fprintf(p.ErrOut, "Accepted by all policies now: %s\n", cmp.Or(strings.Join(commands, ", "), "nothing"))
}

// machineSubject is a VirtualMachine, on which operations are asked for.
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

// may tells whether the user has a right.
func (c *cluster) may(ctx context.Context, right *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: right}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether you may do this: %w", err)
	}
	return review.Status.Allowed, nil
}

// lacks tells whether it is certain that the user has not a right.
func (c *cluster) lacks(ctx context.Context, right *authorizationv1.ResourceAttributes) bool {
	allowed, err := c.may(ctx, right)
	return err == nil && !allowed
}

// noDryRun is what the API server says, as a bad request, if it may not ask a webhook in a dry run.
const noDryRun = "does not support dry run"

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

// ofPolicies are the objections of Sallyport's policies in a refusal.
func ofPolicies(s *metav1.Status) []objection {
	var found []objection
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if policy, reason, is := strings.Cut(string(cause.Type), "/"); is {
				found = append(found, objection{policy, reason, strings.TrimPrefix(cause.Message, fmt.Sprintf("[%s] ", cause.Type))})
			}
		}
	}
	return found
}

// objectionIn reads "[policy/Reason] message" of a warning, which is nothing but text; what is not like that is a message.
func objectionIn(text string) objection {
	rest, bracket := strings.CutPrefix(text, "[")
	who, message, closed := strings.Cut(rest, "] ")
	policy, reason, slash := strings.Cut(who, "/")
	if !bracket || !closed || !slash {
		return objection{Message: text}
	}
	return objection{Policy: policy, Reason: reason, Message: message}
}

// undecided tells whether it is the policy that is wrong, and not the request.
func (o objection) undecided() bool {
	return o.Policy != "" && engine.IsCause(o.Reason)
}
