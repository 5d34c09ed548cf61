package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/audit/reports"
)

// How many objects are read at once, how many violations a policy's status keeps, and how long its texts are, as the API has it.
const (
	pageSize      = 500
	firstFew      = 20
	maxReason     = 64
	maxMessage    = 512
	maxIncomplete = 1024
)

// run is one audit of one policy.
type run struct {
	*Reconciler
	policy  string
	found   *v1alpha1.PolicyViolations
	book    *reports.Book // nil if nothing is to be reported
	missing []string      // what could not be looked at
	ended   bool          // some of what can be looked at was not
	barred  bool          // some of it may not be looked at
}

// audit holds every object that the policy is asked about against it.
func (r *Reconciler) audit(ctx context.Context, policy *v1alpha1.RegoPolicy, revision string, book *reports.Book) (*run, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took longer than %v", patience))
	defer cancel()
	a := &run{Reconciler: r, policy: policy.Name, book: book, found: &v1alpha1.PolicyViolations{
		AuditedAt: metav1.NewTime(r.Now().Truncate(1e9)), Revision: revision,
	}}
	for _, resource := range a.resources(policy.Spec.Match) {
		if err := a.each(ctx, resource); err != nil {
			return nil, err
		}
	}
	a.found.Incomplete = cut(strings.Join(a.missing, "; "), maxIncomplete)
	return a, nil
}

// kindOf is a resource with its kind.
type kindOf struct {
	schema.GroupVersionResource
	kind schema.GroupVersionKind
}

// resources gives what spec.match names with CREATE, each once, in order. A subresource is no object.
func (a *run) resources(match *v1alpha1.PolicyMatch) []kindOf {
	var all []kindOf
	for i, entry := range match.Resources {
		if !slices.Contains(entry.Operations, v1alpha1.MatchCreate) {
			continue
		}
		for _, group := range entry.APIGroups {
			for _, resource := range entry.Resources {
				switch {
				case group == "*" || strings.HasPrefix(resource, "*"):
					a.missed("spec.match.resources[%d] has a wildcard: only groups and resources that it names are looked at", i)
				case strings.Contains(resource, "/"):
				default:
					all = a.resolve(all, schema.GroupResource{Group: group, Resource: resource}, entry.APIVersions)
				}
			}
		}
	}
	slices.SortFunc(all, func(x, y kindOf) int { return strings.Compare(x.GroupResource().String(), y.GroupResource().String()) })
	return all
}

// resolve adds a resource in the first of the versions that the cluster has.
func (a *run) resolve(all []kindOf, resource schema.GroupResource, versions []string) []kindOf {
	if slices.ContainsFunc(all, func(k kindOf) bool { return k.GroupResource() == resource }) {
		return all
	}
	var err error
	for _, version := range versions {
		if version == "*" {
			version = "" // the mapper prefers as the API server does
		}
		var kind schema.GroupVersionKind
		if kind, err = a.Mapper.KindFor(resource.WithVersion(version)); err == nil {
			return append(all, kindOf{resource.WithVersion(kind.Version), kind})
		}
	}
	if meta.IsNoMatchError(err) {
		a.missed("the cluster has no %s", resource)
	} else {
		a.missed("finding %s: %v", resource, err)
		a.ended = true
	}
	return all
}

// each looks at all objects of a resource, page by page. A list that has grown too old in between is begun anew: what was counted
// of it is dropped.
func (a *run) each(ctx context.Context, resource kindOf) error {
	before, notes := *a.found, &reports.Page{}
	for next, again := "", true; ; {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(resource.kind)
		err := a.Live.List(ctx, page, client.Limit(pageSize), client.Continue(next))
		switch {
		case apierrors.IsResourceExpired(err) && again:
			*a.found, notes, next, again = before, &reports.Page{}, "", false
			continue
		case apierrors.IsForbidden(err):
			a.missed("Sallyport may not list %[1]s; chart value rbac.reads with {%[1]s: true} grants it", resource.GroupResource())
			a.barred = true
			return nil
		case err != nil:
			return a.unreadable(ctx, resource, err)
		}
		for i := range page.Items {
			if err := a.look(ctx, resource, &page.Items[i], notes); err != nil {
				return err
			}
		}
		if next = page.GetContinue(); next == "" {
			if a.book != nil {
				a.book.Add(notes)
			}
			return nil
		}
	}
}

// unreadable is an error if the audit was ended from outside, so that it is made again; what else keeps a list from being read is
// told.
func (a *run) unreadable(ctx context.Context, resource kindOf, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	a.missed("listing %s: %v", resource.GroupResource(), err)
	a.ended = true
	return nil
}

// look judges one object.
func (a *run) look(ctx context.Context, resource kindOf, object *unstructured.Unstructured, notes *reports.Page) error {
	foreign := resource.Group != v1alpha1.GroupName
	if object.GetDeletionTimestamp() != nil || foreign && slices.Contains(a.Exempt, object.GetNamespace()) {
		return nil
	}
	judged, err := a.Judge.Judge(ctx, a.policy, resource.GroupVersionResource, object)
	if ctx.Err() != nil {
		return a.unreadable(ctx, resource, err)
	}
	if !judged.Asked && err == nil {
		return nil
	}
	a.found.Objects++
	switch {
	case err != nil:
		if a.found.Undecided++; a.found.Undecided == 1 {
			a.undecided(object, err)
		}
		notes.Undecided(object, judged.Mode, cut(err.Error(), maxMessage))
	case len(judged.Against) > 0:
		a.violates(object, judged, notes)
	default:
		notes.Passes(object)
	}
	return nil
}

func (a *run) violates(object *unstructured.Unstructured, judged Judgement, notes *reports.Page) {
	for i, against := range judged.Against {
		reason, message := cut(against.Reason, maxReason), cut(against.Message, maxMessage)
		notes.Fails(object, judged.Mode, reason, message)
		if i == 0 && len(a.found.First) < firstFew {
			a.found.First = append(a.found.First, v1alpha1.PolicyViolation{
				APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(),
				Reason: reason, Message: message,
			})
		}
	}
	a.found.Count++
}

// missed notes what keeps the result from being whole, once.
func (a *run) missed(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(a.missing, text) {
		a.missing = append(a.missing, text)
	}
}

func cut(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}
