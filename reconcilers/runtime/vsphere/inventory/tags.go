package inventory

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

// Tag is a vCenter tag, which a node selector names by category and name.
type Tag struct{ Category, Name string }

// Selection is tags of which an object must have all.
type Selection []Tag

// Selected returns the tags of selectors that must all match.
func Selected(selectors ...map[string]v1alpha1.LabelValue) (all Selection) {
	for _, selector := range selectors {
		for category, name := range selector {
			all = append(all, Tag{category, string(name)})
		}
	}
	slices.SortFunc(all, func(a, b Tag) int {
		return cmp.Or(strings.Compare(a.Category, b.Category), strings.Compare(a.Name, b.Name))
	})
	return slices.Compact(all)
}

// String returns the selection in the notation of a selector.
func (s Selection) String() string {
	var texts []string
	for _, t := range s {
		texts = append(texts, t.Category+"="+t.Name)
	}
	return "the tags " + strings.Join(texts, ", ")
}

// maxTags limits the tags of a cluster's hosts: each takes a request.
const maxTags = 256

// Tagged returns the hosts that have all of the tags. Without a selection it makes no request.
func (r *Center) Tagged(ctx context.Context, hosts []mo.HostSystem, all Selection) (has []types.ManagedObjectReference, err error) {
	if len(all) == 0 || len(hosts) == 0 {
		return nil, nil
	}
	refs := make([]mo.Reference, 0, len(hosts))
	for _, host := range hosts {
		refs = append(refs, host.Self)
	}
	err = r.REST(ctx, "tags", func(c *rest.Client) error {
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

func (s Selection) in(on []string, ids map[string]Tag) bool {
	return !slices.ContainsFunc(s, func(wanted Tag) bool {
		return !slices.ContainsFunc(on, func(id string) bool { return ids[id] == wanted })
	})
}

// idsOf looks up the attached tags that the selection may contain: by their names, and then by those of their
// categories.
func (r *Center) idsOf(ctx context.Context, manager *tags.Manager, attached []tags.AttachedTags, all Selection) (map[string]Tag, error) {
	var ids []string
	for _, host := range attached {
		ids = append(ids, host.TagIDs...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) > maxTags {
		return nil, runtime.NewInvalidState(nil, "the hosts of the cluster have %d tags together, of which at most %d can be looked at", len(ids), maxTags)
	}
	known, categories := map[string]Tag{}, map[string]string{}
	for _, id := range ids {
		found, err := manager.GetTag(ctx, id)
		if rest.IsStatusError(err, http.StatusNotFound) { // it was removed in the meantime
			continue
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(t Tag) bool { return t.Name == found.Name }) {
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
		known[id] = Tag{category, found.Name}
	}
	return known, nil
}

// AttachedTo returns, for each tag, what it is attached to.
func (r *Center) AttachedTo(ctx context.Context, all Selection) (has []map[types.ManagedObjectReference]bool, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	err = r.REST(ctx, "tags", func(c *rest.Client) error {
		has = nil
		manager := tags.NewManager(c)
		for _, t := range all {
			found, err := manager.GetTagForCategory(ctx, t.Name, t.Category)
			switch {
			case rest.IsStatusError(err, http.StatusUnauthorized), rest.IsStatusError(err, http.StatusForbidden):
				return err
			case err != nil:
				return runtime.NewNotFound(err, "vCenter %s: looking up tag %s of category %s failed: %v", r.Config.Name, t.Name, t.Category, err)
			}
			objects, err := manager.ListAttachedObjects(ctx, found.ID)
			if err != nil {
				return err
			}
			of := map[types.ManagedObjectReference]bool{}
			for _, object := range objects {
				of[object.Reference()] = true
			}
			has = append(has, of)
		}
		return nil
	})
	return has, err
}
