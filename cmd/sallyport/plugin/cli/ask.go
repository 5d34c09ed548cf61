package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Verdict is the response of the API server to a request.
type Verdict string

const (
	// Accepted means that the request is allowed.
	Accepted Verdict = "accepted"
	// Refused means that the request is denied.
	Refused Verdict = "refused"
	// Undecided means that the request is denied only because policies failed to decide.
	Undecided Verdict = "undecided"
	// Forbidden means that RBAC denies the request, so no policy was evaluated.
	Forbidden Verdict = "forbidden"
	// Unknown means that the API server did not respond, or not to this request.
	Unknown Verdict = "unknown"
)

// Answer is the response of the API server to one request.
type Answer struct {
	// Type is the requested operation: one of a machine, the deletion of the object, or Scale.
	Type  v1alpha1.OperationType `json:"type"`
	Force bool                   `json:"force"`
	// Replicas is the requested number of replicas if Type is Scale.
	Replicas *int64 `json:"replicas,omitempty"`
	// Verdict is accepted, refused, undecided, forbidden or unknown.
	Verdict Verdict `json:"verdict"`
	// Reasons has at least one entry unless the verdict is accepted.
	Reasons []Objection `json:"reasons,omitempty"`
	// Warnings are the warnings of the API server.
	Warnings []Objection `json:"warnings,omitempty"`
}

// Objection is one reason.
type Objection struct {
	// Policy is the policy that denies or warns. It is empty if the reason is not from a policy.
	Policy  string `json:"policy,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	// Cause is the message without the object and the way out, if the policy gives it.
	Cause string `json:"cause,omitempty"`
}

// Scaling is the type of requests for another number of replicas.
const Scaling v1alpha1.OperationType = "Scale"

// MachineRequests are the requests that `why` tries on a VirtualMachine: all operations, and its deletion.
func MachineRequests() []Answer {
	var all []Answer
	for _, form := range v1alpha1.OperationForms() {
		all = append(all, Answer{Type: form.Type, Force: form.Force})
	}
	return append(all, Answer{Type: v1alpha1.OperationDelete})
}

// subject is an object that requests are tried on.
type subject interface {
	// Try makes a request as a dry run.
	Try(ctx context.Context, request *Answer) error
	// Right is the permission that a request needs.
	Right(request *Answer) *authorizationv1.ResourceAttributes
}

// Ask sends all requests concurrently as dry runs.
func (c *Cluster) Ask(ctx context.Context, about subject, requests []Answer) []Answer {
	answers := slices.Clone(requests)
	var all sync.WaitGroup
	for i := range answers {
		a := &answers[i]
		all.Go(func() {
			ctx, warned := keepWarnings(ctx)
			err := about.Try(ctx, a)
			a.Verdict, a.Reasons = ParseResponse(err)
			if a.Verdict == Refused && apierrors.IsForbidden(err) && a.Reasons[0].Policy == "" && c.lacks(ctx, about.Right(a)) {
				a.Verdict = Forbidden
			}
			for _, text := range warned.texts {
				a.Warnings = append(a.Warnings, objectionIn(text))
			}
		})
	}
	all.Wait()
	return answers
}

// machineSubject is a VirtualMachine, whose operations are tried.
type machineSubject struct {
	*Cluster
	machine *v1alpha1.VirtualMachine
}

// AskMachine tries requests on a VirtualMachine.
func (c *Cluster) AskMachine(ctx context.Context, machine *v1alpha1.VirtualMachine, requests []Answer) []Answer {
	return c.Ask(ctx, &machineSubject{c, machine}, requests)
}

func (s *machineSubject) Try(ctx context.Context, a *Answer) error {
	if a.Type == v1alpha1.OperationDelete {
		this := client.Preconditions{UID: new(s.machine.UID)}
		return s.Delete(ctx, s.machine.DeepCopy(), client.DryRunAll, this)
	}
	spec := v1alpha1.VirtualMachineOperationSpec{Type: a.Type, Force: a.Force}
	return s.Create(ctx, NewOperation(s.machine.Namespace, s.machine.Name, spec), client.DryRunAll)
}

func (s *machineSubject) Right(a *Answer) *authorizationv1.ResourceAttributes {
	if a.Type == v1alpha1.OperationDelete {
		return &authorizationv1.ResourceAttributes{
			Verb: "delete", Group: v1alpha1.GroupName, Resource: "virtualmachines", Namespace: s.machine.Namespace, Name: s.machine.Name,
		}
	}
	return &authorizationv1.ResourceAttributes{
		Verb: "create", Group: v1alpha1.GroupName, Resource: "virtualmachineoperations", Namespace: s.machine.Namespace,
	}
}

// May reports whether the user has a permission.
func (c *Cluster) May(ctx context.Context, right *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: right}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("checking your permissions: %w", err)
	}
	return review.Status.Allowed, nil
}

// lacks reports whether the user certainly lacks a permission.
func (c *Cluster) lacks(ctx context.Context, right *authorizationv1.ResourceAttributes) bool {
	allowed, err := c.May(ctx, right)
	return err == nil && !allowed
}

// noDryRun is part of the error of the API server if a webhook does not support dry runs.
const noDryRun = "does not support dry run"

// ParseResponse returns the verdict and the reasons of a response: the causes from policies, otherwise the message.
func ParseResponse(err error) (Verdict, []Objection) {
	if err == nil {
		return Accepted, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Unknown, []Objection{{Message: err.Error()}}
	}
	s := status.Status()
	found := ofPolicies(&s)
	switch {
	case found == nil && (Temporary(err) || apierrors.IsBadRequest(err) && strings.Contains(s.Message, noDryRun)):
		return Unknown, []Objection{{Reason: string(s.Reason), Message: s.Message}}
	case found == nil:
		return Refused, []Objection{{Reason: string(s.Reason), Message: s.Message}}
	case slices.ContainsFunc(found, func(o Objection) bool { return !o.Undecided() }):
		return Refused, found
	}
	return Undecided, found
}

func ofPolicies(s *metav1.Status) []Objection {
	var found []Objection
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if policy, reason, is := strings.Cut(string(cause.Type), "/"); is {
				message := strings.TrimPrefix(cause.Message, fmt.Sprintf("[%s] ", cause.Type))
				found = append(found, Objection{Policy: policy, Reason: reason, Message: message})
			} else if cause.Type == decision.CauseShort && len(found) > 0 {
				found[len(found)-1].Cause = cause.Message
			}
		}
	}
	return found
}

// objectionIn parses a warning of the form "[policy/Reason] message". Any other warning is a message.
func objectionIn(text string) Objection {
	rest, bracket := strings.CutPrefix(text, "[")
	who, message, closed := strings.Cut(rest, "] ")
	policy, reason, slash := strings.Cut(who, "/")
	if !bracket || !closed || !slash {
		return Objection{Message: text}
	}
	return Objection{Policy: policy, Reason: reason, Message: strings.TrimPrefix(message, decision.WouldBeDenied)}
}

// Undecided reports whether the policy failed to decide.
func (o Objection) Undecided() bool {
	return o.Policy != "" && engine.IsCause(o.Reason)
}

// Command returns the command for a request.
func (a *Answer) Command() string {
	text := strings.ToLower(string(a.Type))
	if a.Force {
		text += " --force"
	}
	if a.Replicas != nil {
		text += fmt.Sprintf(" --replicas=%d", *a.Replicas)
	}
	return text
}

const (
	// DefaultOverride is how long an override is valid by default. It is half of the maximum, because clocks can differ either way.
	DefaultOverride = 30 * time.Minute
	// LongestOverride is the longest validity that Sallyport accepts.
	LongestOverride = time.Hour
)

// Try asks the API server to create an object, in a dry run whose warnings are not printed. The object becomes what would be created.
func (c *Cluster) Try(ctx context.Context, object client.Object) error {
	ctx, _ = keepWarnings(ctx)
	return c.Create(ctx, object, client.DryRunAll)
}

// MayOverride reports whether the user may override a policy, as far as the user can read.
func (c *Cluster) MayOverride(ctx context.Context, name string) bool {
	allowed, err := c.May(ctx, &authorizationv1.ResourceAttributes{
		Verb: "override", Group: v1alpha1.GroupName, Resource: "regopolicies", Name: name,
	})
	if err != nil || !allowed {
		return false
	}
	policy := &v1alpha1.RegoPolicy{}
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, policy); {
	case err != nil && !apierrors.IsForbidden(err), policy.Spec.Override == v1alpha1.OverrideNobody:
		return false
	case policy.Spec.Override == v1alpha1.OverrideEverybody:
		return true
	}
	who, err := c.WhoAmI(ctx)
	return err == nil && !strings.HasPrefix(who.Username, "system:serviceaccount:")
}

// WhoAmI returns the user as the API server authenticates them.
func (c *Cluster) WhoAmI(ctx context.Context) (authenticationv1.UserInfo, error) {
	who := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, who); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("reading your user name from the API server: %w", err)
	}
	return who.Status.UserInfo, nil
}
