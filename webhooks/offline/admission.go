package offline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/facts"
)

// mutate calls the mutating webhooks.
func (r *Reviewer) mutate(ctx context.Context, p *pending) error {
	asked, err := r.asked(ctx, p, decision.Mutating, r.hooks.mutating, (*catalog.Policy).Mutates)
	if err != nil {
		return err
	}
	for _, h := range asked {
		response, err := r.evaluate(ctx, p, decision.Mutating, h)
		if err != nil && r.explaining != nil && r.explaining.Own { // possibly only the user may not read what the policy can
			p.addNote(AboutPatches, "patches by policies are unknown, the object is evaluated as it was sent: %v", err)
			continue
		}
		if err != nil {
			return err
		}
		if len(response.Patch) == 0 {
			continue
		}
		if err := p.patch(response.Patch); err != nil {
			return err
		}
	}
	return nil
}

// patch applies the patch of a mutating webhook as the API server does.
func (p *pending) patch(text []byte) error {
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	before, err := p.object.MarshalJSON()
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	patched := &unstructured.Unstructured{}
	if err := patched.UnmarshalJSON(after); err != nil {
		return apierrors.NewInternalError(err)
	}
	p.object = patched
	p.recordStage("policies")
	if p.kind.schema != nil && p.scaled == nil {
		p.kind.schema.setDefaults(p.object)
		p.recordStage("schema")
	}
	return nil
}

// validate calls the validating webhooks.
func (r *Reviewer) validate(ctx context.Context, p *pending) error {
	asked, err := r.asked(ctx, p, decision.Validating, r.hooks.validating, (*catalog.Policy).Validates)
	if err != nil {
		return err
	}
	for _, h := range asked {
		if _, err := r.evaluate(ctx, p, decision.Validating, h); err != nil {
			return err
		}
	}
	return nil
}

// asked returns the webhooks that the API server would call for the current request, for the policies that have rules at the
// endpoint. It adds their explanations.
func (r *Reviewer) asked(ctx context.Context, p *pending, endpoint string, all []hook, speaks func(*catalog.Policy) bool) ([]hook, error) {
	asked, skipped, err := r.hooks.matching(ctx, all, p.attributes(), r.homeOf(ctx, p), rights{r.world})
	if err != nil {
		return nil, apierrors.NewForbidden(p.resource(), p.id.name, err)
	}
	for _, s := range skipped {
		if s.policy == "" || len(asked) == 0 && !s.unmarked { // else most policies would be noted with most requests
			p.addNote(AboutWebhook, "%s", s.why)
		}
	}
	if len(asked) == 0 && len(skipped) == 0 {
		r.addUnsentNote(ctx, p, speaks)
	}
	return asked, r.explain(ctx, p, endpoint, asked, skipped)
}

// addUnsentNote adds a note about policies that match a request which the API server sends to no webhook.
func (r *Reviewer) addUnsentNote(ctx context.Context, p *pending, speaks func(*catalog.Policy) bool) {
	review, err := p.review()
	if err != nil {
		return
	}
	for _, s := range r.set.Select(ctx, review.Request, r.facts.For(review.Request, review.Subject())) {
		if !speaks(s.Policy) {
			continue
		}
		text := fmt.Sprintf("policy %s matches, but is not evaluated: the webhook configurations of this release do not send %s of %s",
			s.Name(), p.result.Operation, p.result.Resource)
		if why := r.hooks.never[s.Name()]; len(why) > 0 {
			text = fmt.Sprintf("policy %s matches, but is not evaluated: %s", s.Name(), strings.Join(why, "; "))
		}
		p.addNote(AboutRequest, "%s", text)
	}
}

// aboutNamespace reports whether the request is about a Namespace, which the API server treats as being in itself.
func (p *pending) aboutNamespace() bool {
	return p.kind.resource.Group == "" && p.kind.resource.Resource == "namespaces"
}

// namespace returns the namespace of the request.
func (p *pending) namespace() string {
	if p.aboutNamespace() {
		return p.id.name
	}
	return p.id.namespace
}

// attributes returns the request as the API server's admission packages represent it.
func (p *pending) attributes() *admission.VersionedAttributes {
	var object, old runtime.Object
	if p.object != nil {
		object = p.object
	}
	if p.old != nil && p.result.Operation != admissionv1.Create {
		old = p.old
	}
	u := p.request.User
	info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: facts.Extra[[]string](u.Extra)}
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, p.gvk(), p.namespace(), p.id.name, p.kind.resource, p.result.Subresource,
			admission.Operation(p.result.Operation), nil, false, info),
		VersionedKind: p.gvk(),
	}
	attributes.VersionedObject.Set(object)
	attributes.VersionedOldObject.Set(old)
	return attributes
}

// gvk returns the kind of the request's object: a Scale, the options of a connection, or the object itself.
func (p *pending) gvk() schema.GroupVersionKind {
	switch {
	case p.scaled != nil:
		return scaleKind
	case !p.connection.Empty():
		return p.connection
	}
	return p.kind.GroupVersionKind
}

// options are the option kinds of requests by operation, except CONNECT.
var options = map[admissionv1.Operation]string{
	admissionv1.Create: "CreateOptions", admissionv1.Update: "UpdateOptions", admissionv1.Delete: "DeleteOptions",
}

// review returns the current request as the API server would send it to webhooks.
func (p *pending) review() (*decision.Review, error) {
	no := false
	kind, resource := metav1.GroupVersionKind(p.gvk()), metav1.GroupVersionResource(p.kind.resource)
	request := &admissionv1.AdmissionRequest{
		UID: "00000000-0000-4000-8000-000000000000", Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
		SubResource: p.result.Subresource, RequestSubResource: p.result.Subresource,
		Name: p.id.name, Namespace: p.namespace(), Operation: p.result.Operation, UserInfo: p.request.User, DryRun: &no,
	}
	if kind := options[p.result.Operation]; kind != "" {
		request.Options.Object = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": kind}}
	}
	if p.object != nil {
		request.Object.Object = p.object
	}
	if p.old != nil && p.result.Operation != admissionv1.Create {
		request.OldObject.Object = p.old
	}
	return decision.NewReview(request)
}

// evaluate evaluates the policies as the webhook does: all, or the one of the webhook.
func (r *Reviewer) evaluate(ctx context.Context, p *pending, endpoint string, by hook) (*admissionv1.AdmissionResponse, error) {
	review, err := p.review()
	if err != nil {
		return nil, err
	}
	d, err := decision.NewDecider(r.set, r.facts, nil, r.now).Decide(ctx, &decision.Question{Endpoint: endpoint, Only: by.policy, Review: review})
	if err != nil {
		return nil, err
	}
	response, said := d.Response(), verdictsOf(d)
	p.result.Policies = append(p.result.Policies, said...)
	p.addForeignNote(said)
	if open := d.OpenOverride(); open != "" { // a cluster knows whether it counts
		response.Warnings = slices.DeleteFunc(response.Warnings, func(w string) bool { return w == open })
		p.addNote(AboutRequest, "the override was not judged: %s", open)
	}
	p.warn(response.Warnings...)
	decided := slices.ContainsFunc(said, func(v PolicyVerdict) bool { return v.decides() })
	if slices.ContainsFunc(said, func(v PolicyVerdict) bool { return v.unknown() }) {
		p.undecided, p.unjudged = true, !decided
	}
	if !response.Allowed {
		return nil, webhookerrors.ToStatusErr(by.name, response.Result)
	}
	p.unjudged = false
	return response, nil
}

// addForeignNote adds a note about what is not checked if policies match a kind without a schema.
func (p *pending) addForeignNote(said []PolicyVerdict) {
	if p.kind.schema != nil || len(said) == 0 {
		return
	}
	text := fmt.Sprintf("no schema of %s is available: only Sallyport's policies were evaluated", p.kind.Kind)
	if p.kind.guessed {
		text += fmt.Sprintf(", for resource %s, which is a guess (add the CustomResourceDefinition to the state)", p.result.Resource)
	}
	p.addNote(AboutRequest, "%s", text)
}
