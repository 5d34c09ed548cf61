package webhooks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Review is a decoded AdmissionReview.
type Review struct {
	// Request in Go's terms.
	Request *admissionv1.AdmissionRequest
	// Document is the same request as policies see it.
	Document engine.Value
	// Verified tells that the request is what it says: an API server showed a certificate that --client-ca-file trusts, or Sallyport
	// made the request itself. Anybody who reaches the port can have made any other, with any user in it.
	Verified bool

	bytes int // of the text that it was decoded from, all of which is held as long as the review
}

// Decode reads an AdmissionReview of admission.k8s.io/v1. It is strict where leniency would let two readers of one text see
// two requests: duplicate keys, other spellings of a key and trailing data are errors. The body must not change any more: what
// policies see of it is read when they look.
func Decode(body []byte) (*Review, error) {
	text, err := engine.ParseText(body)
	if err != nil {
		return nil, fmt.Errorf("the body is not a JSON document: %w", err)
	}
	if !text.IsObject() {
		return nil, errors.New("the body is not an AdmissionReview: it is no object")
	}
	review := members{of: text, err: &err}
	kind, version := review.text("kind"), review.text("apiVersion")
	members := review.object("request")
	request := members.request()
	switch {
	case err != nil:
		return nil, fmt.Errorf("the body is not an AdmissionReview: %w", err)
	case kind != "AdmissionReview" || version != admissionv1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("the body is %q of %q, not AdmissionReview of %s", kind, version, admissionv1.SchemeGroupVersion)
	case members.of.IsNull():
		return nil, errors.New("the AdmissionReview has no request")
	case request.UID == "":
		return nil, errors.New("the AdmissionReview has no request.uid")
	}
	return &Review{Request: request, Document: members.of, bytes: len(body)}, nil
}

// Subject identifies the object under review.
func (r *Review) Subject() facts.Subject {
	object := r.Document.Get("object")
	s := facts.Subject{
		Kind:      schema.GroupKind{Group: r.Request.Kind.Group, Kind: r.Request.Kind.Kind},
		Namespace: r.Request.Namespace, Name: r.Request.Name,
	}
	if r.Request.Operation != admissionv1.Create {
		s.Old = r.Document.Get("oldObject")
		object = s.Old
	}
	metadata := object.Get("metadata")
	s.UID = types.UID(metadata.Get("uid").Text())
	if s.Name == "" { // a name made from generateName is in the object only
		s.Name = metadata.Get("name").Text()
	}
	return s
}

// createdByApply tells a CREATE that came as a PATCH: a server-side apply of an object that does not exist yet. The API
// server gives it the options of a create, so only the managed fields show it.
func (r *Review) createdByApply() bool {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(r.Request.Object.Raw, &object); err != nil {
		return false
	}
	return slices.ContainsFunc(object.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Operation == metav1.ManagedFieldsOperationApply
	})
}

func (r *Review) dryRun() bool { return r.Request.DryRun != nil && *r.Request.DryRun }
