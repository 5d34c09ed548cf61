package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// arbitrating is the endpoint of decisions that reconcilers ask for, in metrics and decision records.
const arbitrating = "arbitrate"

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
	review, err := reviewOfOperation(operation)
	if err != nil {
		return Ruling{}, fmt.Errorf("putting operation %s as a request: %w", operation.Name, err)
	}
	reader := &passReader{Reader: g.facts.For(review.Request, review.Subject()), operation: operation}
	if err := reader.answer(machine, unfinished); err != nil {
		return Ruling{}, fmt.Errorf("putting the machine of operation %s as facts: %w", operation.Name, err)
	}
	j := g.judge(ctx, arbitrating, review, reader, speaksOnValidation, question{ask: (*engine.Policy).Decide})
	if j == nil {
		return Ruling{}, errNoSet
	}
	j.hear(ctx, reader, j.stamped(operation))
	g.recorder.record(j, j.respond())
	return j.ruling()
}

// reviewOfOperation is the CREATE request of an operation that exists already.
func reviewOfOperation(o *v1alpha1.VirtualMachineOperation) (*Review, error) {
	o = o.DeepCopy()
	kind := v1alpha1.GroupVersion.WithKind("VirtualMachineOperation")
	o.SetGroupVersionKind(kind)
	return reviewOfCreation(o, kind, "virtualmachineoperations", requesterOf(o))
}

// reviewOfCreation is the request by which an object that exists already would be created by that user.
func reviewOfCreation(
	object metav1.Object, kind schema.GroupVersionKind, resource string, user authenticationv1.UserInfo,
) (*Review, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	request := &admissionv1.AdmissionRequest{
		UID: uuid.NewUUID(), Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
		Kind:     metav1.GroupVersionKind(kind),
		Resource: metav1.GroupVersionResource(kind.GroupVersion().WithResource(resource)),
		UserInfo: user, Object: runtime.RawExtension{Raw: raw},
	}
	document, err := valueOf(request)
	return &Review{Request: request, Document: document, Verified: true}, err
}

func requesterOf(o *v1alpha1.VirtualMachineOperation) authenticationv1.UserInfo {
	by := o.Spec.RequestedBy
	if by == nil {
		return authenticationv1.UserInfo{}
	}
	info := authenticationv1.UserInfo{Username: by.Username, UID: by.UID, Groups: by.Groups}
	for key, values := range by.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = authenticationv1.ExtraValue(values)
	}
	return info
}

// passReader answers from what one pass of a reconciler has read, and live for everything else.
type passReader struct {
	engine.Reader
	operation  *v1alpha1.VirtualMachineOperation
	machine    engine.Value
	operations []v1alpha1.VirtualMachineOperation
}

func (r *passReader) answer(machine *v1alpha1.VirtualMachine, unfinished []v1alpha1.VirtualMachineOperation) (err error) {
	r.operations = unfinished
	if machine != nil {
		r.machine, err = valueOf(machine)
	}
	return err
}

// Read answers a policy's question.
func (r *passReader) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	kind := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind)
	ours := kind.Group == v1alpha1.GroupVersion.Group && q.Namespace == r.operation.Namespace
	switch {
	case ours && kind.Kind == "VirtualMachine" && q.Name == r.operation.Spec.VirtualMachineName:
		return engine.Answer{Value: r.machine, Live: true, ResourceVersion: r.machine.Get("metadata").Get("resourceVersion").Text()}, nil
	case ours && kind.Kind == "VirtualMachineOperation" && q.Fields["spec.virtualMachineName"] == r.operation.Spec.VirtualMachineName:
		others := []v1alpha1.VirtualMachineOperation{} // none is an answer, null is none
		for _, o := range r.operations {
			if o.UID != r.operation.UID && !o.Finished() {
				others = append(others, o)
			}
		}
		v, err := valueOf(others)
		return engine.Answer{Value: v, Live: true}, err
	}
	q.Live = true
	return r.Reader.Read(ctx, q)
}

func valueOf(object any) (engine.Value, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return engine.Value{}, err
	}
	return engine.ParseValue(text)
}

// ruling joins what the policies say. A policy that could not decide and denies then leaves it open, and so does an override of
// which it could not be found out whether it counts.
func (j *judgement) ruling() (Ruling, error) {
	if j.override.open() {
		return Ruling{}, j.override.ignored
	}
	var ruling Ruling
	var refusals []string
	for i := range j.verdicts {
		v := &j.verdicts[i]
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
		ruling.Supersedes = append(ruling.Supersedes, texts(v.decision.Outcome, catalog.OutcomeSupersedes)...)
		ruling.SupersedesOrigins = append(ruling.SupersedesOrigins, texts(v.decision.Outcome, catalog.OutcomeSupersedesOrigins)...)
	}
	if ruling.Denied = len(refusals) > 0; ruling.Denied {
		refusals = append(refusals, j.override.warnings()...)
	}
	ruling.Message = strings.Join(refusals, "\n")
	return ruling, nil
}

// texts are those of a member of an outcome, the shape of which the engine has checked.
func texts(outcome engine.Value, member string) (all []string) {
	for _, name := range outcome.Get(member).Elements() {
		all = append(all, name.Text())
	}
	return all
}
