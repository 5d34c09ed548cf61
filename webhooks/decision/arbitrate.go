package decision

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Admission is the combined result of the policies when an operation is about to be carried out, or a machine used.
type Admission struct {
	// Denied reports whether a policy in mode Enforce denies it; Reason and Message are those of the denials.
	Denied          bool
	Reason, Message string
	// Supersedes names the operations that this one supersedes, SupersedesOrigins the other holders of the claim.
	Supersedes, SupersedesOrigins []string
}

// Arbitrate evaluates the policies for an operation as if its requester created it now. Admission evaluated it from a cache and
// concurrently with other requests, so it is evaluated again. The reconciler has just read the machine (nil if it is gone) and its
// unfinished operations and is about to write them: facts about them come from these arguments, all others are read live. An error
// means that the policies could not be evaluated; the caller retries.
func (g *Decider) Arbitrate(
	ctx context.Context, operation *v1alpha1.VirtualMachineOperation,
	machine *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (Admission, error) {
	review, err := reviewOfOurs(operation, requesterOf(operation))
	if err != nil {
		return Admission{}, fmt.Errorf("building the request for VirtualMachineOperation %s: %w", operation.Name, err)
	}
	reader := &passReader{Reader: live{g.reader(review)}, operation: operation}
	if err := reader.prepare(machine, unfinished); err != nil {
		return Admission{}, fmt.Errorf("building the facts about the machine of VirtualMachineOperation %s: %w", operation.Name, err)
	}
	return g.arbitrate(ctx, review, reader)
}

// arbitrate evaluates review and records the decision, because the caller acts on it.
func (g *Decider) arbitrate(ctx context.Context, review *Review, reader engine.Reader) (Admission, error) {
	d, err := g.decided(ctx, review, reader)
	if err != nil {
		return Admission{}, err
	}
	return d.admission()
}

func (g *Decider) decided(ctx context.Context, review *Review, reader engine.Reader) (*Decision, error) {
	d, err := g.Decide(ctx, &Question{Endpoint: Arbitrating, Review: review, Facts: func(string) engine.Reader { return reader }})
	if err == nil {
		g.record(ctx, d)
	}
	return d, err
}

func requesterOf(o *v1alpha1.VirtualMachineOperation) authenticationv1.UserInfo {
	by := o.Spec.RequestedBy
	if by == nil {
		return authenticationv1.UserInfo{}
	}
	extra := facts.Extra[authenticationv1.ExtraValue](by.Extra)
	return authenticationv1.UserInfo{Username: by.Username, UID: by.UID, Groups: by.Groups, Extra: extra}
}

// passReader answers queries about the operation's machine from what the reconciler has read, and all others from Reader.
type passReader struct {
	engine.Reader
	operation  *v1alpha1.VirtualMachineOperation
	machine    engine.Value
	operations engine.Value
}

func (r *passReader) prepare(machine *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation) error {
	others := []engine.Value{}
	for i := range unfinished {
		if o := &unfinished[i]; o.UID != r.operation.UID && !o.Finished() {
			v, err := documentOf(o)
			if err != nil {
				return err
			}
			others = append(others, v)
		}
	}
	r.operations = engine.List(others)
	if machine == nil {
		return nil
	}
	var err error
	r.machine, err = documentOf(machine)
	return err
}

func documentOf(object any) (engine.Value, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return engine.Value{}, err
	}
	return engine.ValueOf(fields)
}

// Read implements engine.Reader.
func (r *passReader) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	kind, here := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind).GroupKind(), q.Namespace == r.operation.Namespace
	switch {
	case here && kind == machines && q.Name == r.operation.Spec.VirtualMachineName:
		return engine.Answer{Value: r.machine, Live: true, ResourceVersion: r.machine.Get("metadata").Get("resourceVersion").Text()}, nil
	case here && kind == operations && q.Fields["spec.virtualMachineName"] == r.operation.Spec.VirtualMachineName:
		return engine.Answer{Value: r.operations, Live: true}, nil
	}
	return r.Reader.Read(ctx, q)
}

// admission combines the results of all policies. It fails if a policy with onError Deny could not be evaluated, or if the override
// could not be checked.
func (d *Decision) admission() (Admission, error) {
	if d.carried.open() {
		return Admission{}, d.carried.problem()
	}
	var admission Admission
	var denials []string
	for i := range d.verdicts {
		v := &d.verdicts[i]
		switch {
		case v.Err != nil && v.Denies():
			return Admission{}, fmt.Errorf("policy %s: %w", v.Policy.Name(), v.Err)
		case v.Err != nil:
			continue
		case v.Denies():
			for _, o := range v.Denials() {
				denials = append(denials, o.Text())
				if admission.Reason == "" {
					admission.Reason = o.Reason
				}
			}
		}
		admission.Supersedes = append(admission.Supersedes, v.Decision.Outcome.Get(catalog.OutcomeSupersedes).Texts()...)
		admission.SupersedesOrigins = append(admission.SupersedesOrigins, v.Decision.Outcome.Get(catalog.OutcomeSupersedesOrigins).Texts()...)
	}
	if admission.Denied = len(denials) > 0; admission.Denied {
		denials = append(denials, d.carried.warnings()...)
	}
	admission.Message = strings.Join(denials, "\n")
	return admission, nil
}
