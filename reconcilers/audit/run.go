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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// How many objects are read at once, and how long that may take.
const (
	pageSize     = 100
	listPatience = time.Minute
)

// audit holds every object that the policy is asked about against it, and from then on those that change.
func (r *Reconciler) audit(ctx context.Context, policy *v1alpha1.RegoPolicy, of state) (*findings, error) {
	watching, stop := context.WithCancel(ctx)
	f := &findings{
		Reconciler: r, policy: policy.Name, of: of, began: r.Now(), watching: watching, end: stop,
	}
	err := r.inTurn(ctx, f, func(ctx context.Context) error {
		err := f.watchNamespaces(ctx, policy)
		f.resources(policy.Spec.Match)
		for _, k := range f.kinds {
			if err == nil {
				err = f.each(ctx, k, "")
			}
		}
		return err
	})
	f.reader, f.looked = nil, 0
	r.progress(policy.Name, nil)
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// kind is a resource with its kind, and what was found of its objects.
type kind struct {
	schema.GroupVersionResource
	gvk     schema.GroupVersionKind
	objects map[types.NamespacedName]*finding // nil for those that the policy has nothing against
	// heard are the objects that have changed while a list is read, which may have them as they were before.
	heard map[types.NamespacedName]bool
}

// resources gives what spec.match names with CREATE, each once, in order. A subresource is no object.
func (f *findings) resources(match *v1alpha1.PolicyMatch) {
	for i, entry := range match.Resources {
		if !slices.Contains(entry.Operations, v1alpha1.MatchCreate) {
			continue
		}
		for _, group := range entry.APIGroups {
			for _, resource := range entry.Resources {
				switch {
				case group == "*" || strings.HasPrefix(resource, "*"):
					f.missed("spec.match.resources[%d] has a wildcard: only groups and resources that it names are audited", i)
				case strings.Contains(resource, "/"):
				default:
					f.resolve(schema.GroupResource{Group: group, Resource: resource}, entry.APIVersions)
				}
			}
		}
	}
	if len(f.kinds)+len(f.missing) == 0 {
		f.missed("spec.match names no resource with CREATE: no object is held against the policy, set spec.backgroundAudit to Disabled")
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
			f.kinds = append(f.kinds, &kind{
				GroupVersionResource: resource.WithVersion(gvk.Version), gvk: gvk, objects: map[types.NamespacedName]*finding{},
			})
			return
		}
	}
	if meta.IsNoMatchError(err) {
		f.missed("the cluster has no %s", resource)
	} else {
		f.missed("finding %s: %v", resource, err)
		f.ended = true
	}
}

// each looks at all objects of a resource, in one namespace or in all, page by page. A list that has grown too old in between is begun
// anew. What changes from the first page on is heard of, and not taken from the list.
func (f *findings) each(ctx context.Context, k *kind, namespace string) error {
	if f.MayRead != nil && !f.MayRead(f.policy, k.Group, k.Resource) {
		f.bar(k)
		return nil
	}
	f.listing(k)
	defer f.listed(k, namespace, nil)
	there := map[types.NamespacedName]bool{}
	for next, again, first := "", true, namespace == ""; ; {
		page, err := f.page(ctx, k, namespace, next)
		switch {
		case apierrors.IsResourceExpired(err) && again:
			clear(there)
			next, again = "", false
			continue
		case apierrors.IsForbidden(err):
			f.bar(k)
			return nil
		case err != nil:
			return f.unreadable(ctx, k, err)
		}
		if first {
			f.watch(k, page.GetResourceVersion())
			first = false
		}
		for i := range page.Items {
			there[client.ObjectKeyFromObject(&page.Items[i])] = true
			if err := f.look(ctx, k, &page.Items[i], true); err != nil {
				return err
			}
			if err := f.turn.yield(ctx); err != nil {
				return err
			}
		}
		if next = page.GetContinue(); next == "" {
			f.listed(k, namespace, there)
			return nil
		}
	}
}

// bar notes that a resource may not be listed. Whether it may is tried again soon.
func (f *findings) bar(k *kind) {
	f.missed("Sallyport may not list %[1]s; to grant access, add {%[1]s: true} to the chart value rbac.reads", k.GroupResource())
	f.barred = true
}

// page reads some objects of a resource.
func (f *findings) page(ctx context.Context, k *kind, namespace, next string) (*unstructured.UnstructuredList, error) {
	page := &unstructured.UnstructuredList{}
	page.SetGroupVersionKind(k.gvk)
	listing, cancel := context.WithTimeoutCause(ctx, listPatience, fmt.Errorf("the API server took longer than %v", listPatience))
	defer cancel()
	err := f.Live.List(listing, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next))
	if err != nil && listing.Err() != nil {
		err = context.Cause(listing)
	}
	return page, err
}

// unreadable is an error if the audit was ended from outside, so that it is made again; what else keeps a list from being read is
// told.
func (f *findings) unreadable(ctx context.Context, k *kind, err error) error {
	if ctx.Err() != nil {
		if err = context.Cause(ctx); !errors.Is(err, errTooLong) {
			return err
		}
	}
	f.missed("listing %s: %v", k.GroupResource(), err)
	f.ended = true
	return nil
}

// look judges one object.
func (f *findings) look(ctx context.Context, k *kind, object *unstructured.Unstructured, fromList bool) error {
	foreign := k.Group != v1alpha1.GroupName
	if object.GetDeletionTimestamp() != nil || foreign && slices.Contains(f.Exempt, object.GetNamespace()) {
		f.forget(k, object, fromList)
		return nil
	}
	judged, err := f.Judge.Judge(ctx, f.policy, k.GroupVersionResource, object)
	if ctx.Err() != nil {
		return f.unreadable(ctx, k, err)
	}
	if fromList {
		f.proceeds(k)
	}
	if !judged.Asked && err == nil {
		f.forget(k, object, fromList)
		return nil
	}
	f.put(k, object, judged, err, fromList)
	return nil
}

// missed notes what keeps the result from being whole, once.
func (f *findings) missed(format string, args ...any) {
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
