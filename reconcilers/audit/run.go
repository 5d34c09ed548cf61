package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Objects per page, and the time limit for reading one.
const (
	pageSize     = 100
	listPatience = time.Minute
)

// audit evaluates the policy for every object that it matches.
func (r *Reconciler) audit(ctx context.Context, policy *v1alpha1.RegoPolicy, of state) (*findings, error) {
	f := &findings{Reconciler: r, policy: policy.Name, of: of, began: r.Now()}
	err := r.inTurn(ctx, f, func(ctx context.Context) error {
		f.resources(policy.Spec.Match)
		for _, k := range f.kinds {
			if err := f.each(ctx, k); err != nil {
				return err
			}
		}
		return nil
	})
	r.progress(policy.Name, nil)
	return f, err
}

// kind is a resource with its kind, and the findings about its objects.
type kind struct {
	schema.GroupVersionResource
	gvk    schema.GroupVersionKind
	found  []*finding
	passed map[string]int // compliant objects, by namespace
}

// resources resolves the resources that spec.match names with CREATE, each once, in order. Subresources are skipped.
func (f *findings) resources(match *v1alpha1.PolicyMatch) {
	for i, entry := range match.Resources {
		if !slices.Contains(entry.Operations, v1alpha1.MatchCreate) {
			continue
		}
		for _, group := range entry.APIGroups {
			for _, resource := range entry.Resources {
				switch {
				case group == "*" || strings.HasPrefix(resource, "*"):
					f.addMissing("spec.match.resources[%d] has a wildcard: only groups and resources that it names are audited", i)
				case strings.Contains(resource, "/"):
				default:
					f.resolve(schema.GroupResource{Group: group, Resource: resource}, entry.APIVersions)
				}
			}
		}
	}
	if len(f.kinds)+len(f.missing) == 0 {
		f.addMissing("spec.match names no resource with CREATE: no object is held against the policy, set spec.backgroundAudit to Disabled")
	}
	slices.SortFunc(f.kinds, func(x, y *kind) int { return strings.Compare(x.GroupResource().String(), y.GroupResource().String()) })
}

// resolve adds a resource in the first of the versions that the cluster has.
func (f *findings) resolve(resource schema.GroupResource, versions []string) {
	if slices.ContainsFunc(f.kinds, func(k *kind) bool { return k.GroupResource() == resource }) {
		return
	}
	var err error
	for _, version := range versions {
		if version == "*" {
			version = "" // the mapper prefers as the API server does
		}
		var gvk schema.GroupVersionKind
		if gvk, err = f.Mapper.KindFor(resource.WithVersion(version)); err == nil {
			f.kinds = append(f.kinds, &kind{GroupVersionResource: resource.WithVersion(gvk.Version), gvk: gvk, passed: map[string]int{}})
			return
		}
	}
	if meta.IsNoMatchError(err) {
		f.addMissing("the cluster has no %s", resource)
	} else {
		f.addMissing("finding %s: %v", resource, err)
		f.ended = true
	}
}

// each evaluates all objects of a resource, page by page. A list that expires in between is read once more from the beginning.
func (f *findings) each(ctx context.Context, k *kind) error {
	if f.MayRead != nil && !f.MayRead(f.policy, k.Group, k.Resource) {
		f.recordForbidden(k)
		return nil
	}
	texts := f.texts
	for next, again := "", true; ; {
		page, err := f.page(ctx, k, next)
		switch {
		case apierrors.IsResourceExpired(err) && again:
			next, again = "", false
			k.found, f.texts = nil, texts
			clear(k.passed)
			continue
		case apierrors.IsForbidden(err):
			f.recordForbidden(k)
			f.forbidden = true
			return nil
		case err != nil:
			return f.unreadable(ctx, k, err)
		}
		for i := range page.Items {
			if err := f.evaluate(ctx, k, &page.Items[i]); err != nil {
				return err
			}
			if err := f.turn.yield(ctx); err != nil {
				return err
			}
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// recordForbidden records that Sallyport or the policy has no right to list a resource. The next audit then begins when that changes, and
// after lastRetry at the latest.
func (f *findings) recordForbidden(k *kind) {
	f.addMissing("Sallyport may not list %[1]s; to grant access, add {%[1]s: true} to the chart value rbac.reads", k.GroupResource())
	f.barred = true
}

func (f *findings) page(ctx context.Context, k *kind, next string) (*unstructured.UnstructuredList, error) {
	page := &unstructured.UnstructuredList{}
	page.SetGroupVersionKind(k.gvk)
	listing, cancel := context.WithTimeoutCause(ctx, listPatience, fmt.Errorf("the API server took longer than %v", listPatience))
	defer cancel()
	err := f.Live.List(listing, page, client.Limit(pageSize), client.Continue(next))
	if err != nil && listing.Err() != nil {
		err = context.Cause(listing)
	}
	return page, err
}

// unreadable records why a list could not be read. If ctx was cancelled from outside, it returns an error, so that the audit is
// repeated.
func (f *findings) unreadable(ctx context.Context, k *kind, err error) error {
	if ctx.Err() != nil {
		if err = context.Cause(ctx); !errors.Is(err, errTooLong) {
			return err
		}
	}
	f.addMissing("listing %s: %v", k.GroupResource(), err)
	f.ended = true
	return nil
}

func (f *findings) evaluate(ctx context.Context, k *kind, object *unstructured.Unstructured) error {
	foreign := k.Group != v1alpha1.GroupName
	if object.GetDeletionTimestamp() != nil || foreign && slices.Contains(f.Exempt, object.GetNamespace()) {
		return nil
	}
	evaluated, err := f.Evaluator.Evaluate(ctx, f.policy, k.GroupVersionResource, object)
	if ctx.Err() != nil {
		return f.unreadable(ctx, k, err)
	}
	f.reportProgress(k)
	if evaluated.Asked || err != nil {
		f.put(k, object, evaluated, err)
	}
	return nil
}

// addMissing records, once, why the result is incomplete.
func (f *findings) addMissing(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(f.missing, text) {
		f.missing = append(f.missing, text)
	}
}

func cut(text string, most int) string {
	if len(text) > most {
		return v1alpha1.Cut(text, most-3) + "..."
	}
	return text
}
