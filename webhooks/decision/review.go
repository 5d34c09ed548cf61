package decision

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Kinds of Sallyport that decisions treat specially.
var (
	machines   = v1alpha1.KindOf(&v1alpha1.VirtualMachine{}).GroupKind()
	operations = v1alpha1.KindOf(&v1alpha1.VirtualMachineOperation{}).GroupKind()
	servers    = v1alpha1.KindOf(&v1alpha1.VSphereServer{}).GroupKind()
	regoPolicy = v1alpha1.KindOf(&v1alpha1.RegoPolicy{})
)

// Review is a decoded AdmissionReview.
type Review struct {
	// Request is the decoded request.
	Request *admissionv1.AdmissionRequest
	// Document is the same request as policies see it.
	Document engine.Value
	// Verified reports whether the request is authentic: an API server presented a certificate that --client-ca-file trusts, or
	// Sallyport made the request itself. Any client that reaches the port can forge other requests, with any user.
	Verified bool

	// Bytes is the length of the text that it was decoded from, which the review keeps in memory.
	Bytes int
}

// Share returns the namespace or user that takes turns at shared queues.
func (r *Review) Share() string { return facts.Share(r.Request.Namespace, r.Request.UserInfo.Username) }

// serviceAccount is the prefix of the names of service accounts; no other user name has it.
const serviceAccount = "system:serviceaccount:"

// User returns an identifier of the user in the request's namespace. All service accounts of a namespace count as one user, because
// an editor of the namespace can create any number of them.
func (r *Review) User() string {
	user := r.Request.UserInfo.Username
	if account, is := strings.CutPrefix(user, serviceAccount); is {
		namespace, _, _ := strings.Cut(account, ":")
		user = serviceAccount + namespace
	}
	return r.Request.Namespace + "/" + user
}

// Decode reads an AdmissionReview of admission.k8s.io/v1. It rejects duplicate keys, keys in another case and trailing data, which
// two parsers may read differently. The caller must not change body afterwards: policies read it lazily.
func Decode(body []byte) (*Review, error) {
	text, err := engine.ParseText(body)
	if err != nil {
		return nil, fmt.Errorf("the body is not a JSON document: %w", err)
	}
	if !text.IsObject() {
		return nil, errors.New("the body is not an AdmissionReview: it is not an object")
	}
	document := text.Get("request")
	request, err := requestIn(document)
	kind, version := text.Get("kind").Text(), text.Get("apiVersion").Text()
	switch {
	case err != nil:
		return nil, fmt.Errorf("the body is not an AdmissionReview: request: %w", err)
	case kind != "AdmissionReview" || version != admissionv1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("the body is %q of %q, not AdmissionReview of %s", kind, version, admissionv1.SchemeGroupVersion)
	case document.IsNull():
		return nil, errors.New("the AdmissionReview has no request")
	case request.UID == "":
		return nil, errors.New("the AdmissionReview has no request.uid")
	}
	return &Review{Request: request, Document: document, Bytes: len(body)}, nil
}

// Subject returns the identity of the object under review.
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
	if s.Name == "" { // a name made from generateName is only in the object
		s.Name = metadata.Get("name").Text()
	}
	return s
}

// objectText returns the object as JSON, which patches are applied to.
func (r *Review) objectText() []byte {
	is := &r.Request.Object
	if is.Object == nil {
		return is.Raw
	}
	text, err := json.Marshal(is.Object)
	if err != nil {
		panic(err) // the object was converted to a document before
	}
	return text
}

// createdByApply reports whether a CREATE came as a PATCH: a server-side apply of an object that does not exist yet. The API server
// gives it the options of a create, so only managedFields shows it.
func (r *Review) createdByApply() bool {
	fields := r.Document.Get("object").Get("metadata").Get("managedFields")
	return slices.ContainsFunc(fields.Elements(), func(f engine.Value) bool {
		return f.Get("operation").Text() == string(metav1.ManagedFieldsOperationApply)
	})
}

// DryRun reports whether the request is a dry run. kubectl drain sets it in an Eviction's deleteOptions: the API server honours it
// there, and does not repeat it in the review.
func (r *Review) DryRun() bool {
	options := []engine.Value{r.Document.Get("options")}
	if r.Request.SubResource == "eviction" {
		options = append(options, r.Document.Get("object").Get("deleteOptions"))
	}
	return r.Request.DryRun != nil && *r.Request.DryRun ||
		slices.ContainsFunc(options, func(o engine.Value) bool { return len(o.Get("dryRun").Elements()) > 0 })
}

// NewReview returns a review of a request that Sallyport makes itself. The request's objects and options are
// [unstructured.Unstructured]; they have no text.
func NewReview(request *admissionv1.AdmissionRequest) (*Review, error) {
	bare := *request
	bare.Object, bare.OldObject, bare.Options = runtime.RawExtension{}, runtime.RawExtension{}, runtime.RawExtension{}
	members, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&bare)
	if err != nil {
		return nil, err
	}
	for name, is := range map[string]runtime.Object{
		"object": request.Object.Object, "oldObject": request.OldObject.Object, "options": request.Options.Object,
	} {
		if u, ok := is.(*unstructured.Unstructured); ok {
			members[name] = u.Object
		}
	}
	if !finite(members) {
		return nil, errors.New("it contains a number that JSON cannot represent")
	}
	document, err := engine.ValueOf(members)
	return &Review{Request: request, Document: document, Verified: true}, err
}

func finite(decoded any) bool {
	switch node := decoded.(type) {
	case map[string]any:
		for _, child := range node {
			if !finite(child) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(node, func(child any) bool { return !finite(child) })
	case float64:
		return !math.IsNaN(node) && !math.IsInf(node, 0)
	}
	return true
}

// reviewOfCreation returns the request with which user would create an existing object.
func reviewOfCreation(object *unstructured.Unstructured, resource string, user authenticationv1.UserInfo) (*Review, error) {
	kind := object.GroupVersionKind()
	return NewReview(&admissionv1.AdmissionRequest{
		UID: uuid.NewUUID(), Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
		Kind:     metav1.GroupVersionKind(kind),
		Resource: metav1.GroupVersionResource(kind.GroupVersion().WithResource(resource)),
		UserInfo: user, Object: runtime.RawExtension{Object: object},
	})
}

// reviewOfOurs is reviewOfCreation for an object of Sallyport's kinds.
func reviewOfOurs(object runtime.Object, user authenticationv1.UserInfo) (*Review, error) {
	u, err := unstructuredOf(object)
	if err != nil {
		return nil, err
	}
	return reviewOfCreation(u, v1alpha1.KindOf(object).Resource(), user)
}

// unstructuredOf converts an object of Sallyport's kinds to the form in which the API server returns it.
func unstructuredOf(object runtime.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindOf(object).Name))
	return u, nil
}
