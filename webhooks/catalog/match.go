package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// all is the wildcard of rules, as in webhook configurations.
const all = "*"

// resourceKey is the key of the index of policies. Resource includes the subresource: "deployments/scale".
type resourceKey struct{ group, resource, operation string }

// entry is one of a policy's spec.match.resources, under one of its keys.
type entry struct {
	policy   *Policy
	versions []string
}

// add adds a policy under every key of its match.
func (index resourceIndex) add(p *Policy) {
	if p.match.PolicyMatch == nil {
		return
	}
	for _, r := range p.match.Resources {
		e := entry{policy: p, versions: r.APIVersions}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, operation := range r.Operations {
					key := resourceKey{group, resource, string(operation)}
					index[key] = append(index[key], e)
				}
			}
		}
	}
}

type resourceIndex map[resourceKey][]entry

// Selected is a policy that matches a request, or whose match is unknown.
type Selected struct {
	*Policy
	// Mode is the enforcement mode for the request's namespace.
	Mode v1alpha1.PolicyMode
	// Err is set if the policy is broken, or if the namespace's labels could not be read: the policy follows its onError, because
	// "no match" would be a silent allow. Mode is then the strictest of the possible ones.
	Err error
}

// Select returns the policies that match the request, by name. It reads the labels of the request's namespace, once, if a policy
// selects by them. A request on a Namespace contains them.
func (s *Set) Select(ctx context.Context, request *admissionv1.AdmissionRequest, reader engine.Reader) []Selected {
	home := homeOf(ctx, request, reader)
	var selected []Selected
	for _, p := range s.candidates(request) {
		met, err := p.matches(request, home)
		if p.err != nil && Repairs(request) || !met && err == nil {
			continue
		}
		mode, unread := p.modeFor(request, home)
		switch {
		case p.err != nil:
			err = p.err
		case err == nil:
			err = unread
		}
		selected = append(selected, Selected{Policy: p, Mode: mode, Err: err})
	}
	return selected
}

// homes are the labels of a request's namespace; if the request changes the namespace, the old and the new ones.
type homes []labels.Set

// selectedBy reports whether a selector (nil for all) selects the namespace by its old or its new labels: a policy must see
// requests that add or remove a label that it selects by.
func (h homes) selectedBy(s labels.Selector) bool {
	return s == nil || slices.ContainsFunc(h, func(set labels.Set) bool { return s.Matches(set) })
}

// labelsOf returns the labels of a request's namespace.
type labelsOf func() (homes, error)

func homeOf(ctx context.Context, request *admissionv1.AdmissionRequest, reader engine.Reader) labelsOf {
	return sync.OnceValues(func() (homes, error) {
		if onNamespace(request) {
			return homesIn(request)
		}
		set, err := labelsOfNamespace(ctx, request, reader)
		return homes{set}, err
	})
}

// onNamespace reports whether the request is about a Namespace itself, whose new labels are only in the request.
func onNamespace(request *admissionv1.AdmissionRequest) bool {
	return request.Resource.Group == "" && request.Resource.Resource == "namespaces"
}

// placed reports whether the request has a namespace. A Namespace that has no name yet counts, too.
func placed(request *admissionv1.AdmissionRequest) bool {
	return request.Namespace != "" || onNamespace(request)
}

// homesIn returns the labels of the Namespace that the request is about.
func homesIn(request *admissionv1.AdmissionRequest) (found homes, err error) {
	for _, object := range []*runtime.RawExtension{&request.OldObject, &request.Object} {
		set, there, err := labelsInRequest(object)
		if !there {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the labels of Namespace %s: %w", request.Name, err)
		}
		found = append(found, set)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("reading the labels of Namespace %s: the request has no object", request.Name)
	}
	return found, nil
}

func labelsOfNamespace(ctx context.Context, request *admissionv1.AdmissionRequest, reader engine.Reader) (labels.Set, error) {
	q := engine.Query{Fact: "namespace", APIVersion: "v1", Kind: "Namespace", Name: request.Namespace}
	answer, err := reader.Read(ctx, q)
	if err == nil && answer.Value.IsNull() && !answer.Live { // a new namespace may not have reached the cache
		q.Live = true
		answer, err = reader.Read(ctx, q)
	}
	if err == nil && answer.Value.IsNull() { // missing labels would select nothing; API servers reject such requests, too
		err = errors.New("namespace not found")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the labels of namespace %s: %w", request.Namespace, err)
	}
	return LabelsOf(answer.Value), nil
}

// LabelsOf returns the labels of an object from the API server.
func LabelsOf(object engine.Value) labels.Set {
	set := labels.Set{}
	object.Get("metadata").Get("labels").Each(func(name string, v engine.Value) { set[name] = v.Text() })
	return set
}

var policyResource = v1alpha1.KindOf(&v1alpha1.RegoPolicy{}).Resource()

// Repairs reports whether the request can repair or delete policies.
func Repairs(request *admissionv1.AdmissionRequest) bool {
	return request.Resource.Group == v1alpha1.GroupName && request.Resource.Resource == policyResource
}

// matches reports whether a candidate matches spec.match. Reads come last.
func (p *Policy) matches(request *admissionv1.AdmissionRequest, home labelsOf) (bool, error) {
	if p.match.excluded(request) {
		return false, nil
	}
	if met, err := p.match.object(request); !met || err != nil {
		return false, err
	}
	return p.match.namespace(request, home)
}

// candidates returns the policies with an entry in spec.match.resources for the request.
func (s *Set) candidates(request *admissionv1.AdmissionRequest) []*Policy {
	var policies []*Policy
	for _, key := range lookups(request) {
		for _, e := range s.index[key] {
			if covers(e.versions, request.Resource.Version) {
				policies = append(policies, e.policy)
			}
		}
	}
	slices.SortFunc(policies, byName)
	return slices.Compact(policies)
}

func covers(versions []string, version string) bool {
	return slices.Contains(versions, all) || slices.Contains(versions, version)
}

// lookups returns the keys that match a request: exact, and with each wildcard that covers it.
func lookups(request *admissionv1.AdmissionRequest) []resourceKey {
	resource, sub := request.Resource.Resource, request.SubResource
	resources := []string{resource, all, "*/*"}
	if sub != "" {
		resources = []string{resource + "/" + sub, resource + "/*", "*/" + sub, "*/*"}
	}
	keys := make([]resourceKey, 0, 2*len(resources))
	for _, group := range []string{request.Resource.Group, all} {
		for _, r := range resources {
			keys = append(keys, resourceKey{group, r, string(request.Operation)})
		}
	}
	return keys
}

// matcher is a RegoPolicy's spec.match.
type matcher struct {
	*v1alpha1.PolicyMatch
	namespaces labels.Selector // nil: every namespace
	objects    labels.Selector // nil: every object
}

// newMatcher returns an error if spec.match is invalid. Without resources the matcher then matches nothing; a selector that is invalid
// selects everything.
func newMatcher(match *v1alpha1.PolicyMatch) (m matcher, err error) {
	if match == nil || len(match.Resources) == 0 {
		return matcher{}, errors.New("resources: at least one is required")
	}
	usable := *match
	var errs [2]error
	if m.namespaces, err = newSelector(match.NamespaceSelector); err != nil {
		errs[0] = fmt.Errorf("namespaceSelector: %w", err)
	}
	if m.objects, err = newSelector(match.ObjectSelector); err != nil {
		errs[1] = fmt.Errorf("objectSelector: %w", err)
	}
	if m.namespaces == nil {
		usable.NamespaceSelector = nil
	}
	if m.objects == nil {
		usable.ObjectSelector = nil
	}
	m.PolicyMatch = &usable
	return m, errors.Join(errs[:]...)
}

// newSelector returns nil for a selector that selects everything.
func newSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil, nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// covers reports whether the request matches one of the resources, without the index.
func (m matcher) covers(request *admissionv1.AdmissionRequest) bool {
	return slices.ContainsFunc(m.Resources, func(r v1alpha1.PolicyResources) bool { return len(mismatches(&r, request)) == 0 })
}

func (m matcher) excluded(request *admissionv1.AdmissionRequest) bool {
	return slices.Contains(m.ExcludeUsers, request.UserInfo.Username) ||
		request.Namespace != "" && slices.Contains(m.ExcludeNamespaces, request.Namespace) ||
		slices.ContainsFunc(request.UserInfo.Groups, func(g string) bool { return slices.Contains(m.ExcludeGroups, g) })
}

// object reports whether the selector selects the request's object by its old or new labels, as API servers do: CONNECT has no
// object with labels, so that no selector selects it.
func (m matcher) object(request *admissionv1.AdmissionRequest) (bool, error) {
	if m.objects == nil || request.Operation == admissionv1.Connect {
		return m.objects == nil, nil
	}
	for _, object := range []*runtime.RawExtension{&request.Object, &request.OldObject} {
		set, there, err := labelsInRequest(object)
		if !there {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("reading the labels of the object: %w", err)
		}
		if m.objects.Matches(set) {
			return true, nil
		}
	}
	return false, nil
}

// labelsInRequest returns the labels of an object in a request, encoded or decoded.
func labelsInRequest(object *runtime.RawExtension) (set labels.Set, there bool, err error) {
	if u, ok := object.Object.(*unstructured.Unstructured); ok {
		if written, _, err := unstructured.NestedFieldNoCopy(u.Object, "metadata", "labels"); written == nil {
			return nil, true, err
		}
		set, _, err = unstructured.NestedStringMap(u.Object, "metadata", "labels")
		return set, true, err
	}
	if len(object.Raw) == 0 {
		return nil, false, nil
	}
	set, err = labelsIn(engine.Text(object.Raw))
	return set, true, err
}

// labelsIn returns the labels of an object.
func labelsIn(object engine.Value) (labels.Set, error) {
	metadata := object.Get("metadata")
	if !object.IsObject() || !metadata.IsNull() && !metadata.IsObject() {
		return nil, errors.New("not an object with metadata")
	}
	set, all := labels.Set{}, metadata.Get("labels")
	usable := all.IsNull() || all.IsObject()
	all.Each(func(name string, v engine.Value) {
		usable = usable && (v.IsText() || v.IsNull())
		set[name] = v.Text()
	})
	if !usable {
		return nil, errors.New("metadata.labels is not an object of texts")
	}
	return set, nil
}

// namespace reports whether the selector selects the request's namespace. Cluster-scoped objects always match.
func (m matcher) namespace(request *admissionv1.AdmissionRequest, home labelsOf) (bool, error) {
	if m.namespaces == nil || !placed(request) {
		return true, nil
	}
	sets, err := home()
	return err == nil && sets.selectedBy(m.namespaces), err
}

// Match returns the active spec.match, without selectors that select everything; empty if it has no resources.
func (p *Policy) Match() v1alpha1.PolicyMatch {
	if p.match.PolicyMatch == nil {
		return v1alpha1.PolicyMatch{}
	}
	return *p.match.PolicyMatch
}

// DeniesUnasked reports whether a request is denied because no replica evaluates the policy. The API server has one answer for all requests.
func (p *Policy) DeniesUnasked() bool {
	return p.regime.strictest() == v1alpha1.ModeEnforce && p.OnError == v1alpha1.OnErrorDeny && p.failure == v1alpha1.FailureFail
}
