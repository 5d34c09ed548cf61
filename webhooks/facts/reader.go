package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/webhooks/engine"
)

type requester = authenticationv1.UserInfo

// Subject is the object under review. Lists omit it, so that policies see the state without the request's object.
type Subject struct {
	Kind            schema.GroupKind
	Namespace, Name string
	// UID is set at UPDATE and DELETE, and at CREATE on the validating endpoint only.
	UID types.UID
	// Old is the object as stored; null at CREATE.
	Old engine.Value
}

// TestRunner runs the tests of a document that a policy asks about.
type TestRunner interface {
	RunTests(ctx context.Context, document engine.Value) (engine.Value, error)
}

// RunTestsWith sets the runner of tests. Call it before the first request.
func (s *Store) RunTestsWith(r TestRunner) { s.testRunner = r }

// reader answers the queries of one request.
type reader struct {
	store   *Store
	request *admissionv1.AdmissionRequest
	subject Subject
}

// For returns the reader of one request.
func (s *Store) For(request *admissionv1.AdmissionRequest, subject Subject) engine.Reader {
	return &reader{store: s, request: request, subject: subject}
}

// Read implements engine.Reader.
func (r *reader) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	switch {
	case q.Access != nil:
		return r.access(ctx, q)
	case q.TestRun:
		return r.testRun(ctx, q)
	case q.Parent && q.Kind == "":
		return r.parent()
	}
	q.Live = q.Live || r.store.cache == nil
	if err := r.store.checkWithheld(q); err != nil {
		return engine.Answer{}, err
	}
	if r.subject.Is(q) && !q.Parent && !q.Metadata {
		return engine.Answer{Value: r.subject.Old, Live: true}, nil
	}
	uid, needed := types.UID(""), false
	if q.Parent {
		uid, needed = r.parentUID()
	}
	if needed && uid == "" {
		return engine.Answer{}, errors.New("the request does not identify its object: oldObject.metadata.uid is missing")
	}
	f, err := r.find(ctx, q)
	if err != nil {
		return engine.Answer{}, err
	}
	answer := engine.Answer{Live: q.Live || q.Metadata, ResourceVersion: f.resourceVersion, Part: f.part}
	switch {
	case q.Name == "":
		answer.Value = r.list(q, f.objects)
	case !needed || len(f.objects) > 0 && f.objects[0].uid == uid:
		answer.Value = one(f.objects)
	}
	return answer, nil
}

// parentUID returns the UID of the parent, which API servers send with the old Scale; "" if it is missing. A client that forges a
// request does not know it, so it cannot read the parent through a policy's answer. A creation, such as of an Eviction, has no old
// object, and needs no UID.
func (r *reader) parentUID() (uid types.UID, needed bool) {
	of := r.request.Operation
	return types.UID(r.subject.Old.Get("metadata").Get("uid").Text()), of == admissionv1.Update || of == admissionv1.Delete
}

func (r *reader) find(ctx context.Context, q engine.Query) (found, error) {
	if q.Live || q.Metadata {
		return r.store.live.read(ctx, r.share(), q)
	}
	return r.store.cached(q)
}

// share returns the share of live reads that this read counts for: the request's namespace, or its user.
func (r *reader) share() string { return Share(r.request.Namespace, r.request.UserInfo.Username) }

// Share returns the name of the share of limited resources that a request counts for.
func Share(namespace, username string) string {
	if namespace == "" {
		return "user " + username
	}
	return "namespace " + namespace
}

func (r *reader) access(ctx context.Context, q engine.Query) (engine.Answer, error) {
	allowed, err := r.store.live.may(ctx, r.share(), r.request.UserInfo, q.Access)
	if err != nil {
		return engine.Answer{}, fmt.Errorf("asking whether the requester may %s %s: %w", q.Access.Verb, q.Access.Resource, err)
	}
	v, err := engine.ValueOf(allowed)
	return engine.Answer{Value: v, Live: true}, err
}

// testRun runs the tests of a document. The result is live.
func (r *reader) testRun(ctx context.Context, q engine.Query) (engine.Answer, error) {
	if r.store.testRunner == nil {
		return engine.Answer{}, errors.New("test runs are not available here")
	}
	v, err := r.store.testRunner.RunTests(ctx, q.Document)
	return engine.Answer{Value: v, Live: true}, err
}

// parent returns the identity of the parent of a subresource, without reading it.
func (r *reader) parent() (engine.Answer, error) {
	if r.request.SubResource == "" {
		return engine.Answer{}, errors.New("the request is not for a subresource, so there is no parent")
	}
	resource := r.request.Resource
	gvk, err := r.store.live.client.RESTMapper().KindFor(schema.GroupVersionResource(resource))
	if err != nil {
		return engine.Answer{}, err
	}
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	v, err := engine.ValueOf(map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": r.request.Namespace, "name": r.request.Name},
	})
	return engine.Answer{Value: v, Live: true}, err
}

// Is reports whether a query asks for the object under review by its name.
func (s Subject) Is(q engine.Query) bool {
	kind := schema.FromAPIVersionAndKind(q.APIVersion, q.Kind).GroupKind()
	return q.Name != "" && kind == s.Kind && q.Namespace == s.Namespace && q.Name == s.Name
}

// list sorts objects by age and removes the object under review and those in Sallyport's own namespace.
func (r *reader) list(q engine.Query, objects []*object) engine.Value {
	objects = slices.Clone(objects) // the slice may be shared
	if r.store.ownNamespace != "" {
		objects = slices.DeleteFunc(objects, func(o *object) bool { return o.namespace == r.store.ownNamespace })
	}
	if schema.FromAPIVersionAndKind(q.APIVersion, q.Kind).GroupKind() == r.subject.Kind {
		objects = slices.DeleteFunc(objects, r.reviewed)
	}
	slices.SortFunc(objects, func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(string(a.uid), string(b.uid)))
	})
	values := make([]engine.Value, len(objects))
	for i, o := range objects {
		values[i] = o.value
	}
	return engine.List(values)
}

// reviewed reports whether o, of the subject's kind, is the object under review.
func (r *reader) reviewed(o *object) bool {
	if r.subject.UID != "" {
		return o.uid == r.subject.UID
	}
	return o.namespace == r.subject.Namespace && o.name == r.subject.Name
}

func one(objects []*object) engine.Value {
	if len(objects) == 0 {
		return engine.Value{}
	}
	return objects[0].value
}
