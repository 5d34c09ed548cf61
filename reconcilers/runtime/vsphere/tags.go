package vsphere

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// tag is a vCenter tag, which a node selector names by category and name.
type tag struct{ category, name string }

type selection []tag

// selected returns the tags of selectors that must all match.
func selected(selectors ...map[string]v1alpha1.LabelValue) (all selection) {
	for _, selector := range selectors {
		for category, name := range selector {
			all = append(all, tag{category, string(name)})
		}
	}
	slices.SortFunc(all, func(a, b tag) int {
		return cmp.Or(strings.Compare(a.category, b.category), strings.Compare(a.name, b.name))
	})
	return slices.Compact(all)
}

// String returns the selection in the notation of a selector.
func (s selection) String() string {
	var texts []string
	for _, t := range s {
		texts = append(texts, t.category+"="+t.name)
	}
	return "the tags " + strings.Join(texts, ", ")
}

// maxTags limits the tags of a cluster's hosts: each takes a request.
const maxTags = 256

// tagged returns the hosts that have all of the tags. Without a selection it makes no request.
func (r *Runtime) tagged(ctx context.Context, hosts []mo.HostSystem, all selection) (has []types.ManagedObjectReference, err error) {
	if len(all) == 0 || len(hosts) == 0 {
		return nil, nil
	}
	refs := make([]mo.Reference, 0, len(hosts))
	for _, host := range hosts {
		refs = append(refs, host.Self)
	}
	err = r.server.REST(ctx, "tags", func(c *rest.Client) error {
		has = nil
		manager := tags.NewManager(c)
		attached, err := manager.ListAttachedTagsOnObjects(ctx, refs)
		if err != nil {
			return err
		}
		ids, err := r.idsOf(ctx, manager, attached, all)
		for _, host := range attached {
			if err == nil && all.in(host.TagIDs, ids) {
				has = append(has, host.ObjectID.Reference())
			}
		}
		return err
	})
	return has, err
}

func (s selection) in(on []string, ids map[string]tag) bool {
	return !slices.ContainsFunc(s, func(wanted tag) bool {
		return !slices.ContainsFunc(on, func(id string) bool { return ids[id] == wanted })
	})
}

// idsOf looks up the attached tags that the selection may contain: by their names, and then by those of their
// categories.
func (r *Runtime) idsOf(ctx context.Context, manager *tags.Manager, attached []tags.AttachedTags, all selection) (map[string]tag, error) {
	var ids []string
	for _, host := range attached {
		ids = append(ids, host.TagIDs...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) > maxTags {
		return nil, runtime.NewInvalidState(nil, "the hosts of the cluster have %d tags together, of which at most %d can be looked at", len(ids), maxTags)
	}
	known, categories := map[string]tag{}, map[string]string{}
	for _, id := range ids {
		found, err := manager.GetTag(ctx, id)
		if rest.IsStatusError(err, http.StatusNotFound) { // it was removed in the meantime
			continue
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(t tag) bool { return t.name == found.Name }) {
			continue
		}
		category, read := categories[found.CategoryID]
		if !read {
			of, err := manager.GetCategory(ctx, found.CategoryID)
			if err != nil {
				return nil, err
			}
			category = of.Name
			categories[found.CategoryID] = category
		}
		known[id] = tag{category, found.Name}
	}
	return known, nil
}
