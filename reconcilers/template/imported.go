package template

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// maxImported is how many instance UUIDs a status keeps; the schema says the same. Of more, the oldest are forgotten.
const maxImported = 64

// own moves items to the others that were not imported by us. The mark of an item does not prove it: whoever may edit a machine in the folder
// can write the mark, with the release of a template that was never verified. Of a status from before UUIDs were recorded, which has a
// template, the items are taken as they are, once.
func (p *place) own(v *View) {
	if len(p.status.Imported) == 0 && p.status.InstanceUUID != "" {
		for _, item := range v.Items {
			p.status.Imported = appended(p.status.Imported, item.InstanceUUID)
		}
	}
	v.Items = slices.DeleteFunc(v.Items, func(item Item) bool {
		foreign := !slices.ContainsFunc(p.status.Imported, func(id string) bool { return strings.EqualFold(id, item.InstanceUUID) })
		if foreign {
			v.Others[item.Name] = true
		}
		return foreign
	})
}

// appended adds a UUID to those that were recorded.
func appended(all []string, id string) []string {
	if id == "" || slices.Contains(all, id) {
		return all
	}
	all = append(all, id)
	return all[max(0, len(all)-maxImported):]
}

// importedIn gives what was imported into a folder, by whatever name its failure domain has in the status.
func importedIn(s *v1alpha1.VSphereTemplateStatus, folder string) []string {
	for i := range s.FailureDomains {
		if s.FailureDomains[i].Folder != folder {
			continue
		}
		if all := s.FailureDomains[i].Imported; len(all) > 0 {
			return slices.Clone(all)
		}
		return appended(nil, s.FailureDomains[i].InstanceUUID)
	}
	return nil
}

// record writes the instance UUIDs into the status before the last of them is imported. The others are those that the pass knows: it may not
// have written them yet, and its write conflicts with this one.
func (r *Reconciler) record(ctx context.Context, t *v1alpha1.VSphereTemplate, d *v1alpha1.VSphereFailureDomain, ids []string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := &v1alpha1.VSphereTemplate{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(t), now); err != nil {
			return err
		}
		if now.UID != t.UID {
			return errChanged
		}
		i := slices.IndexFunc(now.Status.FailureDomains, func(s v1alpha1.VSphereFailureDomainStatus) bool { return s.Name == d.Name })
		if i < 0 {
			i = len(now.Status.FailureDomains)
			now.Status.FailureDomains = append(now.Status.FailureDomains, v1alpha1.VSphereFailureDomainStatus{Name: d.Name, Folder: string(d.Folder)})
		}
		of := &now.Status.FailureDomains[i]
		for _, id := range ids {
			of.Imported = appended(of.Imported, id)
		}
		return r.Client.Status().Update(ctx, now)
	})
	if err != nil {
		return fmt.Errorf("recording the import in the status of VSphereTemplate %s: %w", t.Name, err)
	}
	return nil
}
