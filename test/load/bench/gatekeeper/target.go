package main

import (
	"encoding/json"
	"fmt"

	"github.com/open-policy-agent/frameworks/constraint/pkg/core/constraints"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

const targetName = "admission.k8s.gatekeeper.sh"

// target is what Gatekeeper has between the framework and Kubernetes, for constraints that match everything.
type target struct{}

// GetName of the target.
func (target) GetName() string { return targetName }

// MatchSchema lets any match pass.
func (target) MatchSchema() apiextensions.JSONSchemaProps {
	return apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
}

// ProcessData says where in the inventory an object is.
func (target) ProcessData(data any) (handle bool, key []string, inventory any, err error) {
	o, ok := data.(*unstructured.Unstructured)
	if !ok {
		return false, nil, nil, fmt.Errorf("not an object: %T", data)
	}
	return true, []string{"namespace", o.GetNamespace(), o.GetAPIVersion(), o.GetKind(), o.GetName()}, o.Object, nil
}

// HandleReview gives the review as rules see it.
func (target) HandleReview(review any) (handle bool, seen any, err error) {
	return true, review.(*admissionv1.AdmissionRequest), nil
}

// ValidateConstraint accepts all.
func (target) ValidateConstraint(*unstructured.Unstructured) error { return nil }

// ToMatcher matches all.
func (target) ToMatcher(*unstructured.Unstructured) (constraints.Matcher, error) {
	return always{}, nil
}

type always struct{}

// Match everything.
func (always) Match(any) (bool, error) { return true, nil }

// decode reads a review as a webhook does.
func decode(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	err := json.Unmarshal(body, &review)
	return review.Request, err
}
