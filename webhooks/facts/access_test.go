package facts

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/webhooks/engine"
)

// authorizer answers reviews with a status.
type authorizer struct {
	client.Client
	asked  authorizationv1.SubjectAccessReviewSpec
	status authorizationv1.SubjectAccessReviewStatus
	err    error
}

func (a *authorizer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	review := o.(*authorizationv1.SubjectAccessReview)
	a.asked, review.Status = review.Spec, a.status
	return a.err
}

// A failure to ask is neither a yes nor a no; an authorizer that failed and yet allows has allowed.
func TestAnswersOfTheAuthorizer(t *testing.T) {
	request := &admissionv1.AdmissionRequest{UserInfo: authenticationv1.UserInfo{
		Username: "ann", UID: "1", Groups: []string{"readers"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
	}}
	q := engine.Query{Access: &engine.Access{Verb: "get", Group: "g", Resource: "pods", Namespace: "ns", Name: "p"}}
	gone := errors.New("gone")
	for name, tc := range map[string]struct {
		authorizer authorizer
		want       string
		err        string
	}{
		"allowed":            {authorizer{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, "true", ""},
		"not allowed":        {authorizer{}, "false", ""},
		"allowed, and error": {authorizer{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "odd"}}, "true", ""},
		"undecided": {authorizer{status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "odd"}}, "",
			"asking whether the requester may get pods: the authorizer could not decide: odd"},
		"not answered": {authorizer{err: gone}, "", "asking whether the requester may get pods: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := NewStore(nil, &tc.authorizer).For(request, Subject{}).Read(t.Context(), q)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tc.err || errors.Is(err, gone) != (tc.authorizer.err != nil) {
				t.Fatalf("got error %v", err)
			}
			value, _ := answer.Value.MarshalJSON()
			if err == nil && (string(value) != tc.want || !answer.Live) {
				t.Errorf("got %s, live: %t", value, answer.Live)
			}
			want := authorizationv1.SubjectAccessReviewSpec{
				User: "ann", UID: "1", Groups: []string{"readers"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Group: "g", Resource: "pods", Namespace: "ns", Name: "p"},
			}
			if diff := cmp.Diff(want, tc.authorizer.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

type testRunner struct{ err error }

func (r testRunner) RunTests(_ context.Context, document engine.Value) (engine.Value, error) {
	return document, r.err
}

// What is tested is as of now, and an error of the test run is one.
func TestTestRunsAreAnswered(t *testing.T) {
	document, err := engine.ValueOf("document")
	if err != nil {
		t.Fatal(err)
	}
	store := NewStore(nil, nil)
	q := engine.Query{TestRun: true, Document: document}
	if _, err := store.For(&admissionv1.AdmissionRequest{}, Subject{}).Read(t.Context(), q); err == nil {
		t.Error("a test run without a testRunner is answered")
	}
	store.RunTestsWith(testRunner{})
	if answer, err := store.For(&admissionv1.AdmissionRequest{}, Subject{}).Read(t.Context(), q); err != nil || answer.Value.Text() != "document" || !answer.Live {
		t.Errorf("got %+v, %v", answer, err)
	}
	failed := errors.New("failed")
	store.RunTestsWith(testRunner{failed})
	if _, err := store.For(&admissionv1.AdmissionRequest{}, Subject{}).Read(t.Context(), q); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}
