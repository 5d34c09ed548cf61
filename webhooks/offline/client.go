package offline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// worldClient is the client for live reads, with the rules of an API server.
type worldClient struct {
	client.Client // what facts do not use
	world         *World
}

// Get reads an object.
func (c *worldClient) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk := into.GetObjectKind().GroupVersionKind()
	found := c.world.get(identity{gvk.GroupKind(), key.Namespace, key.Name})
	if found == nil && gvk.GroupKind() == namespaceKind && c.world.assumed[key.Name] {
		found = c.world.assumedNamespace(key.Name)
	}
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}, key.Name)
	}
	if err := sameVersion(found, gvk); err != nil {
		return err
	}
	switch into := into.(type) {
	case *metav1.PartialObjectMetadata:
		return runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, into)
	case *unstructured.Unstructured:
		found.DeepCopyInto(into)
		return nil
	}
	return fmt.Errorf("facts are not read as a %T", into)
}

// List lists objects.
func (c *worldClient) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	list := into.(*unstructured.UnstructuredList)
	gvk := list.GroupVersionKind()
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	var o client.ListOptions
	o.ApplyOptions(options)
	if o.FieldSelector != nil && !o.FieldSelector.Empty() { // as API servers answer for most fields; facts then select themselves
		return apierrors.NewBadRequest("field selectors are not supported here")
	}
	for _, t := range c.world.all(func(t *storedObject) bool { return t.GroupVersionKind().GroupKind() == gvk.GroupKind() }) {
		if err := sameVersion(t.Unstructured, gvk); err != nil {
			return err
		}
		switch {
		case o.Namespace != "" && o.Namespace != t.GetNamespace():
		case o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(t.GetLabels())):
		default:
			list.Items = append(list.Items, *t.DeepCopy())
		}
	}
	return nil
}

// sameVersion returns an error if an object is requested in another version than its own.
func sameVersion(u *unstructured.Unstructured, wanted schema.GroupVersionKind) error {
	if u.GroupVersionKind() == wanted {
		return nil
	}
	return fmt.Errorf("%s is in the state as %s, but a policy reads it as %s; versions cannot be converted without a cluster",
		identityOf(u), u.GetAPIVersion(), wanted.GroupVersion())
}

// Create answers a SubjectAccessReview with one of the world.
func (c *worldClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	asked, ok := object.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return fmt.Errorf("a %T cannot be created without a cluster", object)
	}
	for i := range c.world.answers {
		if c.world.answers[i].covers(&asked.Spec) {
			asked.Status = c.world.answers[i].Status
			return nil
		}
	}
	return fmt.Errorf("the state has no answer; add this SubjectAccessReview to it, with its status: %s", template(&asked.Spec))
}

// covers reports whether the answer is for this review. Groups and UID are ignored if the answer does not name them.
func (a *answer) covers(asked *authorizationv1.SubjectAccessReviewSpec) bool {
	is, wanted := a.Spec.ResourceAttributes, asked.ResourceAttributes
	return a.Spec.User == asked.User && (a.Spec.UID == "" || a.Spec.UID == asked.UID) &&
		(len(a.Spec.Groups) == 0 || sameTexts(a.Spec.Groups, asked.Groups)) &&
		is.Verb == wanted.Verb && is.Group == wanted.Group && is.Resource == wanted.Resource && is.Subresource == wanted.Subresource &&
		is.Namespace == wanted.Namespace && is.Name == wanted.Name
}

func sameTexts(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// template returns the SubjectAccessReview that would answer, as a line of YAML.
func template(asked *authorizationv1.SubjectAccessReviewSpec) string {
	attributes, err := json.Marshal(asked.ResourceAttributes)
	if err != nil {
		panic(err) // it has only strings
	}
	return fmt.Sprintf(`{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": %q, "resourceAttributes": %s}, "status": {"allowed": true}}`,
		asked.User, attributes)
}

// RESTMapper returns the resources and kinds of the world.
func (c *worldClient) RESTMapper() meta.RESTMapper {
	seen := meta.NewDefaultRESTMapper(nil)
	for gvk, k := range c.world.kinds.known {
		seen.AddSpecific(gvk, k.resource, k.resource, meta.RESTScopeRoot) // the scope is not used
	}
	return seen
}
