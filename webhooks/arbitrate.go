package webhooks

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

// Ruling is what the policies say of an operation, or of a machine, at the moment at which something would be done about it.
type Ruling struct {
	// Denied tells that a policy in mode Enforce refuses it; Reason and Message are the denials'.
	Denied          bool
	Reason, Message string
	// Supersedes names the operations that it takes the place of, SupersedesOrigins the other holders of the claim.
	Supersedes, SupersedesOrigins []string
}

// Arbitrate asks the policies about an operation as if it were created now by who asked for it then. Admission saw the
// world through a cache and beside other requests; this is the second door. The machine, nil if it is gone, and its
// unfinished operations are what the reconciler has just read and is about to write on: facts about them are answered from
// there, all others live. An error means that no ruling could be made; it is to be tried again.
func (g *Gate) Arbitrate(
	ctx context.Context, operation *v1alpha1.VirtualMachineOperation,
	machine *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation,
) (Ruling, error) {
	review, err := reviewOfOurs(operation, requesterOf(operation))
	if err != nil {
		return Ruling{}, fmt.Errorf("building the request for VirtualMachineOperation %s: %w", operation.Name, err)
	}
	reader := &passReader{Reader: live{g.reader(review)}, operation: operation}
	if err := reader.answer(machine, unfinished); err != nil {
		return Ruling{}, fmt.Errorf("building the facts about the machine of VirtualMachineOperation %s: %w", operation.Name, err)
	}
	return g.arbitrate(ctx, review, reader)
}

// arbitrate asks about what exists as if it were created now. The decision is recorded: somebody acts on it.
func (g *Gate) arbitrate(ctx context.Context, review *Review, reader engine.Reader) (Ruling, error) {
	d, err := g.decided(ctx, review, reader)
	if err != nil {
		return Ruling{}, err
	}
	return d.ruling()
}

func (g *Gate) decided(ctx context.Context, review *Review, reader engine.Reader) (*Decision, error) {
	d, err := g.Decide(ctx, &Question{Endpoint: Arbitrating, Review: review, Facts: func(string) engine.Reader { return reader }})
	if err == nil {
		g.recorder.record(d, d.Response())
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

// passReader answers from what one pass of a reconciler has read, and by another reader for everything else.
type passReader struct {
	engine.Reader
	operation  *v1alpha1.VirtualMachineOperation
	machine    engine.Value
	operations engine.Value
}

func (r *passReader) answer(machine *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation) error {
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

// Read answers a policy's question.
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

// ruling joins what the policies say. A policy that could not decide and denies then leaves it open, and so does an override of
// which it could not be found out whether it counts.
func (d *Decision) ruling() (Ruling, error) {
	if d.override.open() {
		return Ruling{}, d.override.problem()
	}
	var ruling Ruling
	var refusals []string
	for i := range d.verdicts {
		v := &d.verdicts[i]
		switch {
		case v.err != nil && v.refuses():
			return Ruling{}, fmt.Errorf("policy %s: %w", v.policy.Name(), v.err)
		case v.err != nil:
			continue
		case v.refuses():
			for _, o := range v.objections() {
				refusals = append(refusals, o.text())
				if ruling.Reason == "" {
					ruling.Reason = o.Reason
				}
			}
		}
		ruling.Supersedes = append(ruling.Supersedes, v.decision.Outcome.Get(catalog.OutcomeSupersedes).Texts()...)
		ruling.SupersedesOrigins = append(ruling.SupersedesOrigins, v.decision.Outcome.Get(catalog.OutcomeSupersedesOrigins).Texts()...)
	}
	if ruling.Denied = len(refusals) > 0; ruling.Denied {
		refusals = append(refusals, d.override.warnings()...)
	}
	ruling.Message = strings.Join(refusals, "\n")
	return ruling, nil
}
