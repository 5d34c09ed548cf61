package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// all is the wildcard of rules, with the meaning that it has in webhook configurations.
const all = "*"

// resourceKey finds the policies for a request. Resource includes the subresource: "deployments/scale".
type resourceKey struct{ group, resource, operation string }

// entry is one of a policy's spec.match.resources, under one of its keys.
type entry struct {
	policy   *Policy
	versions []string
}

// add puts a policy under every key of its match.
func (index resourceIndex) add(p *Policy) {
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

// Selected is a policy that a request meets, or that cannot tell whether it does.
type Selected struct {
	*Policy
	// Err is set if the namespace's labels could not be read: the policy follows its onError, because "no match" would be
	// a silent allow.
	Err error
}

// Select gives the policies that the request meets, in the order of their names. The reader is asked for the labels of
// the request's namespace if a policy selects by them.
func (s *Set) Select(ctx context.Context, request *admissionv1.AdmissionRequest, reader engine.Reader) []Selected {
	var selected []Selected
	for _, p := range s.candidates(request) {
		if p.match.excluded(request) {
			continue
		}
		met, err := p.match.namespace(ctx, request, reader)
		if met || err != nil {
			selected = append(selected, Selected{Policy: p, Err: err})
		}
	}
	return selected
}

// candidates are the policies with an entry in spec.match.resources for the request.
func (s *Set) candidates(request *admissionv1.AdmissionRequest) []*Policy {
	var policies []*Policy
	for _, key := range lookups(request) {
		for _, e := range s.index[key] {
			if slices.Contains(e.versions, all) || slices.Contains(e.versions, request.Resource.Version) {
				policies = append(policies, e.policy)
			}
		}
	}
	slices.SortFunc(policies, byName)
	return slices.Compact(policies)
}

// lookups are the keys under which a request's policies can stand: exact, and with each wildcard that covers it.
func lookups(request *admissionv1.AdmissionRequest) []resourceKey {
	resource, sub := request.Resource.Resource, request.SubResource
	resources := []string{resource, all, "*/*"}
	if sub != "" {
		resources = []string{resource + "/" + sub, resource + "/*", "*/" + sub, "*/*"}
	}
	var keys []resourceKey
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
}

func newMatcher(match *v1alpha1.PolicyMatch) (matcher, error) {
	if match == nil || len(match.Resources) == 0 {
		return matcher{}, errors.New("resources: at least one is needed")
	}
	m := matcher{PolicyMatch: match}
	if s := match.NamespaceSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			return matcher{}, fmt.Errorf("namespaceSelector: %w", err)
		}
		m.namespaces = selector
	}
	return m, nil
}

func (m matcher) excluded(request *admissionv1.AdmissionRequest) bool {
	return slices.Contains(m.ExcludeUsers, request.UserInfo.Username) ||
		request.Namespace != "" && slices.Contains(m.ExcludeNamespaces, request.Namespace) ||
		slices.ContainsFunc(request.UserInfo.Groups, func(g string) bool { return slices.Contains(m.ExcludeGroups, g) })
}

// namespace tells whether the request's namespace has the labels. Cluster-scoped objects are judged whatever it says.
func (m matcher) namespace(ctx context.Context, request *admissionv1.AdmissionRequest, reader engine.Reader) (bool, error) {
	if m.namespaces == nil || request.Namespace == "" {
		return true, nil
	}
	q := engine.Query{Fact: "namespace", APIVersion: "v1", Kind: "Namespace", Name: request.Namespace}
	answer, err := reader.Read(ctx, q)
	if err == nil && answer.Value.IsNull() && !answer.Live { // a new namespace may not have reached the cache
		q.Live = true
		answer, err = reader.Read(ctx, q)
	}
	if err != nil {
		return false, fmt.Errorf("reading the labels of namespace %s: %w", request.Namespace, err)
	}
	var set labels.Set
	text, err := json.Marshal(answer.Value.Get("metadata").Get("labels"))
	if err == nil {
		err = json.Unmarshal(text, &set)
	}
	return err == nil && m.namespaces.Matches(set), err
}
