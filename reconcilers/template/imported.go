package template

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// maxImported limits the instance UUIDs in a status; the schema has the same limit. The oldest are dropped.
const maxImported = 64

// separateForeign moves items that Sallyport did not import to v.Others. The mark of an item is no proof: users who
// may edit machines in the folder can write it, with the release of a template that was never verified. In a status
// from before UUIDs were recorded the items are accepted once.
func (p *place) separateForeign(v *templates.View) {
	if len(p.status.Imported) == 0 && p.status.InstanceUUID != "" {
		for _, item := range v.Items {
			p.status.Imported = appended(p.status.Imported, item.InstanceUUID)
		}
	}
	v.Items = slices.DeleteFunc(v.Items, func(item templates.Item) bool {
		foreign := !slices.ContainsFunc(p.status.Imported, func(id string) bool { return strings.EqualFold(id, item.InstanceUUID) })
		if foreign {
			v.Others[item.Name] = true
		}
		return foreign
	})
}

// appended adds a UUID to the recorded ones.
func appended(all []string, id string) []string {
	if id == "" || slices.Contains(all, id) {
		return all
	}
	all = append(all, id)
	return all[max(0, len(all)-maxImported):]
}

// importedIn returns the UUIDs imported into a folder, under whatever name its failure domain has in the status.
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

// recordImport writes the instance UUIDs into the status before the last of them is imported. The others are those
// that the pass knows: they may not be written yet, and the pass's own write conflicts with this one.
func (r *Reconciler) recordImport(ctx context.Context, t *v1alpha1.VSphereTemplate, d *v1alpha1.VSphereFailureDomain, ids []string) error {
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
