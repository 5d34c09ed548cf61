package offline

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// anything is conditions that everything meets.
type anything struct{}

func (anything) Match(context.Context, *admission.VersionedAttributes, runtime.Object, authorizer.UnconditionalAuthorizer) matchconditions.MatchResult {
	return matchconditions.MatchResult{Matches: true}
}

// The labels of a namespace are asked for only by a webhook that goes by them, about what is in a namespace: where they are not known,
// all else can be told still.
func TestLabelsOfANamespaceThatAreNotKnown(t *testing.T) {
	unknown := errors.New("the file has no such namespace")
	home := func() (labels.Set, error) { return nil, unknown }
	everything := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}
	some := labels.SelectorFromSet(labels.Set{"a": "b"})
	for name, tc := range map[string]struct {
		namespace string
		selector  labels.Selector
		want      error
	}{
		"in a namespace, by its labels":       {"team-a", some, unknown},
		"in a namespace, whatever its labels": {"team-a", labels.Everything(), nil},
		"in no namespace":                     {"", some, nil},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		kind := schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}
		attributes := &admission.VersionedAttributes{VersionedObject: admission.NewLazyObject(object), VersionedKind: kind, Attributes: admission.NewAttributesRecord(
			object, nil, kind, tc.namespace, "x", schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "ks"}, "", admission.Create, nil, false,
			&user.DefaultInfo{Name: "ann"})}
		all := []hook{{name: "h", rules: []admissionregistrationv1.RuleWithOperations{everything}, namespaces: tc.selector, objects: labels.Everything(), conditions: anything{}}}
		asked, _, err := (&Hooks{}).matching(t.Context(), all, attributes, home, rights{})
		if !errors.Is(err, tc.want) || err == nil && len(asked) != 1 {
			t.Errorf("%s: %d are asked, error %v, want %v", name, len(asked), err, tc.want)
		}
	}
}
