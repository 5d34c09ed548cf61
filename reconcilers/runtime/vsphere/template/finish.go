package template

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/session"
)

// Finish makes an imported item a template. The mark is completed before that: a template cannot be marked.
func (s *Store) Finish(ctx context.Context, d templates.Domain, item templates.Item) (finished templates.Item, err error) {
	var of *sighting
	for _, step := range []func(context.Context) error{
		inTimeOf(func(ctx context.Context) (err error) { of, err = s.unfinished(ctx, d, item); return err }),
		inTimeOf(func(ctx context.Context) (err error) { of, err = s.boot(ctx, d, item, of); return err }),
		func(ctx context.Context) error { return s.tag(ctx, d, of) },
		inTimeOf(func(ctx context.Context) (err error) {
			if of.mark.Stage != inventory.MarkFinished {
				of, err = s.recordStage(ctx, d, item, of, inventory.MarkFinished)
			}
			return err
		}),
		inTimeOf(func(ctx context.Context) error { return s.markAsTemplate(ctx, d, item, of) }),
		inTimeOf(func(ctx context.Context) (err error) { of, err = s.findIn(ctx, d, *of.vm.Parent, item); return err }),
	} {
		if err := step(ctx); err != nil {
			if fault.Is(err, &types.ConcurrentAccess{}) {
				err = changed(err, item)
			}
			return templates.Item{}, gone(err, item)
		}
		if of.stage() == templates.Whole {
			break
		}
	}
	return of.item(), nil
}

// inTimeOf wraps a step whose calls share one timeout.
func inTimeOf(step func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return inTime(ctx, step) }
}

func (s *Store) unfinished(ctx context.Context, d templates.Domain, item templates.Item) (*sighting, error) {
	of, err := s.unchanged(ctx, d, item)
	if err == nil && of.stage() == templates.Partial {
		return nil, runtime.NewInvalidState(nil, "the import of %s did not finish", session.Shown(item.Name))
	}
	return of, err
}

var firmwares = map[v1alpha1.VSphereFirmware]types.GuestOsDescriptorFirmwareType{
	v1alpha1.VSphereFirmwareBIOS: types.GuestOsDescriptorFirmwareTypeBios,
	v1alpha1.VSphereFirmwareEFI:  types.GuestOsDescriptorFirmwareTypeEfi,
}

// boot sets the firmware of the item, if it differs.
func (s *Store) boot(ctx context.Context, d templates.Domain, item templates.Item, of *sighting) (*sighting, error) {
	config := of.vm.Config
	firmware, secure := config.Firmware, false
	if options := config.BootOptions; options != nil && options.EfiSecureBootEnabled != nil {
		secure = *options.EfiSecureBootEnabled
	}
	var spec types.VirtualMachineConfigSpec
	if wanted := string(firmwares[d.Spec.Firmware]); wanted != "" && wanted != firmware {
		firmware, spec.Firmware = wanted, wanted
	}
	wanted := secure
	if d.Spec.SecureBoot != nil {
		wanted = *d.Spec.SecureBoot
	}
	if wanted && firmware != string(types.GuestOsDescriptorFirmwareTypeEfi) {
		return nil, runtime.NewInvalidSpec(nil, "spec.secureBoot: secure boot needs the firmware EFI, but the guest would have %s: "+
			"set spec.firmware to EFI, or spec.secureBoot to false", firmware)
	}
	if wanted != secure {
		spec.BootOptions = &types.VirtualMachineBootOptions{EfiSecureBootEnabled: &wanted}
	}
	if spec.Firmware == "" && spec.BootOptions == nil {
		return of, nil
	}
	return s.change(ctx, d, item, of, spec)
}

func (s *Store) markAsTemplate(ctx context.Context, d templates.Domain, item templates.Item, of *sighting) error {
	// vCenter does not check a version here: a change of the item is noticed by this read.
	now, err := s.findIn(ctx, d, *of.vm.Parent, item)
	if err != nil {
		return err
	}
	if now.vm.Config.ChangeVersion != of.vm.Config.ChangeVersion {
		return changed(nil, item)
	}
	return s.Call(ctx, func(c *vim25.Client) error { return object.NewVirtualMachine(c, of.vm.Self).MarkAsTemplate(ctx) })
}

// taggingPatience limits the time to look up and attach tags.
const taggingPatience = time.Minute

// tag attaches the tags that the item does not have.
func (s *Store) tag(ctx context.Context, d templates.Domain, of *sighting) error {
	if len(d.Spec.Tags) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, taggingPatience)
	defer cancel()
	if err := s.tenancy.mayTag(ctx, d); err != nil {
		return err
	}
	return s.REST(ctx, "tags", func(c *rest.Client) error {
		manager := tags.NewManager(c)
		present, err := manager.ListAttachedTags(ctx, of.vm.Self)
		if err != nil {
			return err
		}
		ids, err := s.tagIDs(ctx, manager, d.Spec.Tags)
		if err != nil {
			return err
		}
		for i, id := range ids {
			if slices.Contains(present, id) {
				continue
			}
			if err := s.attachTag(manager.AttachTag(ctx, id, of.vm.Self), inventory.Tag{Category: d.Spec.Tags[i].Category, Name: d.Spec.Tags[i].Name}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) attachTag(err error, t inventory.Tag) error {
	switch {
	case rest.IsStatusError(err, http.StatusForbidden):
		return runtime.NewPermission(err, "vCenter %s does not let the account attach the tag %s=%s", s.Config.Name, session.Shown(t.Category), session.Shown(t.Name))
	case rest.IsStatusError(err, http.StatusNotFound):
		return runtime.NewInvalidState(err, "the tag %s=%s, or the template, has just been deleted", session.Shown(t.Category), session.Shown(t.Name))
	case rest.IsStatusError(err, http.StatusBadRequest):
		return runtime.NewInvalidSpec(err, "spec.tags: vCenter %s does not attach the tag %s=%s to the template: its category may be for other kinds of "+
			"objects, or for one tag each", s.Config.Name, session.Shown(t.Category), session.Shown(t.Name))
	}
	return err
}

// tagIDs looks up tags, which must exist.
func (s *Store) tagIDs(ctx context.Context, manager *tags.Manager, wanted []v1alpha1.VSphereTag) (ids []string, err error) {
	categories, err := namesOf(ctx, manager.ListCategories, func(ctx context.Context, id string) (string, error) {
		category, err := manager.GetCategory(ctx, id)
		if err != nil {
			return "", err
		}
		return category.Name, nil
	})
	if err != nil {
		return nil, err
	}
	known := map[string]map[string]string{}
	for _, t := range wanted {
		category, is := categories[t.Category]
		if is && known[category] == nil {
			known[category], err = namesOf(ctx, func(ctx context.Context) ([]string, error) { return manager.ListTagsForCategory(ctx, category) },
				func(ctx context.Context, id string) (string, error) {
					found, err := manager.GetTag(ctx, id)
					if err != nil {
						return "", err
					}
					return found.Name, nil
				})
			if err != nil {
				return nil, err
			}
		}
		id := known[category][t.Name]
		if id == "" {
			return nil, runtime.NewInvalidSpec(nil, "spec.tags: vCenter %s has no tag %s in the category %s, or does not show it",
				s.Config.Name, session.Shown(t.Name), session.Shown(t.Category))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// maxNamed limits the categories, and the tags of a category, that are read.
const maxNamed = 1024

// namesOf returns the IDs of categories or tags by name. Each takes a request.
func namesOf(
	ctx context.Context, list func(context.Context) ([]string, error), name func(context.Context, string) (string, error),
) (map[string]string, error) {
	ids, err := list(ctx)
	if err != nil {
		return nil, err
	}
	if len(ids) > maxNamed {
		return nil, runtime.NewInvalidState(nil, "vCenter has %d categories, or tags in one of them, of which at most %d can be looked at", len(ids), maxNamed)
	}
	all := map[string]string{}
	for _, id := range ids {
		text, err := name(ctx, id)
		if rest.IsStatusError(err, http.StatusNotFound) { // it was removed in the meantime
			continue
		}
		if err != nil {
			return nil, err
		}
		all[text] = id
	}
	return all, nil
}
