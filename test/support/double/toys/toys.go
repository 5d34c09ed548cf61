// Package toys has policies, facts and reviews of a toy domain, for the tests of the webhooks.
package toys

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Review returns a request as it is decoded from what the API server sends.
func Review(t testing.TB, request *admissionv1.AdmissionRequest) *decision.Review {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	review, err := decision.Decode(body)
	if err != nil {
		t.Fatal(err)
	}
	return review
}

// GoodReview is a review of the creation of a red ConfigMap.
const GoodReview = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r-1", "operation": "CREATE",
	"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "resource": {"group": "", "version": "v1", "resource": "configmaps"},
	"name": "cm", "namespace": "ns", "userInfo": {"username": "ann"}, "object": {"spec": {"name": "x", "red": true}}}}`

// FullReview has every field of a request.
const FullReview = `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "r-1",
	"kind": {"group": "a", "version": "v1", "kind": "A"}, "resource": {"group": "b", "version": "v2", "resource": "bs"}, "subResource": "scale",
	"requestKind": {"group": "c", "version": "v3", "kind": "C"}, "requestResource": {"group": "d", "version": "v4", "resource": "ds"},
	"requestSubResource": "status", "name": "na\u006de", "namespace": "ns", "operation": "UPDATE",
	"userInfo": {"username": "ann", "uid": "u", "groups": ["g", "h"], "extra": {"k": ["v"]}},
	"object": {"spec": {"x": [1, {"y": null}]}}, "oldObject": {"spec": "\"x"}, "dryRun": true, "options": {"kind": "UpdateOptions"}}}`

// DenyMetadata is the METADATA of a deny rule with a reason.
const DenyMetadata = "# METADATA\n# title: T\n# custom: {reason: %s, remedyInMessage: do it}\n"

// Denies is a rule that refuses objects whose spec has the field, with that reason and code.
func Denies(field, reason string, code int) string {
	return fmt.Sprintf(DenyMetadata+`deny contains {"reason": %q, "code": %d, "message": $"{input.request.object.spec.name} has %s"} if input.request.object.spec.%s`+"\n\n",
		reason, reason, code, field, field)
}

// PolicyOf makes a policy on ConfigMaps.
func PolicyOf(name, rules string, change ...func(*v1alpha1.RegoPolicySpec)) v1alpha1.RegoPolicy {
	p := v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RegoPolicySpec{
		Package: "toy." + name, TimeoutMilliseconds: 4000,
		Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
			Operations: []v1alpha1.MatchOperation{"CREATE", "UPDATE", "DELETE"},
		}}},
		Reads: []v1alpha1.PolicyRead{{APIVersion: "v1", Kind: "Service"}},
		Modules: []v1alpha1.PolicyModule{{Name: name + ".rego", Source: "# METADATA\n# title: T\n# description: D\npackage toy." +
			name + "\n\nvalid_input if is_object(input.request)\n\n" + rules}},
	}}
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}

// OnErrorAllow sets spec.onError.
func OnErrorAllow(s *v1alpha1.RegoPolicySpec) { s.OnError = v1alpha1.OnErrorAllow }

// World answers every fact with null.
type World struct{}

// For implements decision.FactSource.
func (w World) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return w }

// Read implements engine.Reader.
func (World) Read(context.Context, engine.Query) (engine.Answer, error) {
	return engine.Answer{Live: true}, nil
}
