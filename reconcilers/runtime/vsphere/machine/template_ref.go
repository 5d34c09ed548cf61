package machine

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// resolved returns a machine whose spec has the path of the referenced template beside the reference.
func resolved(m runtime.Machine) runtime.Machine {
	if m.Template != nil {
		m.Spec = m.Spec.DeepCopy()
		cloneOf(m).Template.InventoryPath = m.Template.Path
	}
	return m
}

func templateField(clone *v1alpha1.VSphereClone) string {
	if clone.Template.TemplateRef != nil {
		return "template.templateRef"
	}
	return "template.inventoryPath"
}

// referred finds the template of a VSphereTemplate: the object with its name, if it has the mark of that
// VSphereTemplate. Between the two renames of a replacement there is none; that passes soon.
func (r *Runtime) referred(ctx context.Context, m runtime.Machine, into *mo.VirtualMachine) error {
	clone, server := cloneOf(m), r.Config.Name
	path, field := clone.Template.InventoryPath, templateField(clone)
	ref, err := r.Named(ctx, path, "VirtualMachine")
	if err != nil {
		return err
	}
	if ref == nil || m.Template == nil {
		return r.replaced(m, nil)
	}
	if err := r.Read(ctx, *ref, into, ofTemplate...); err != nil {
		return r.replacedMeanwhile(m, err)
	}
	mark, marked := inventory.TemplateMarkOf(into)
	switch {
	case into.Config == nil:
		return runtime.NewUnavailable(nil, "%s%s: vCenter %s does not show the configuration of what is at %s", inventory.OfClone, field, server, path)
	case !marked || mark.Owner != m.Template.UID && !slices.Contains(m.Template.Former, string(mark.Owner)) ||
		!slices.ContainsFunc(m.Template.Imported, func(id string) bool { return strings.EqualFold(id, mark.Uuid) }):
		return inventory.Invalid(field, "vCenter %s has %s %s at %s, which does not belong to VSphereTemplate %s: rename or remove it there",
			server, machineOrTemplate(into.Config.Template), ref.Value, path, m.Template.Name)
	case !into.Config.Template || mark.Stage != inventory.MarkFinished:
		return r.replaced(m, nil)
	case into.Snapshot != nil:
		return inventory.Invalid(field, "the template at %s has snapshots: remove them", path)
	}
	return nil
}

func machineOrTemplate(template bool) string {
	if template {
		return "a template"
	}
	return "a machine"
}

// replaced returns the error for a VSphereTemplate without a complete template.
func (r *Runtime) replaced(m runtime.Machine, cause error) error {
	clone := cloneOf(m)
	return runtime.NewUnavailable(cause, "%s%s: vCenter %s has no template of VSphereTemplate %s at %s at the moment: it is being replaced, or was "+
		"moved or renamed", inventory.OfClone, templateField(clone), r.Config.Name, clone.Template.TemplateRef.Name, clone.Template.InventoryPath)
}

// replacedMeanwhile returns the error for a template that disappeared during the call.
func (r *Runtime) replacedMeanwhile(m runtime.Machine, err error) error {
	if runtime.IsNotFound(err) && cloneOf(m).Template.TemplateRef != nil {
		return r.replaced(m, err)
	}
	return err
}

// origin returns the record of what a machine is created from, for its status.
func (p *placement) origin(m runtime.Machine) []types.BaseOptionValue {
	mark, marked := inventory.TemplateMarkOf(p.template)
	if m.Template == nil || !marked {
		return nil
	}
	return []types.BaseOptionValue{&types.OptionValue{Key: MadeFromKey, Value: m.Template.Name + " " + mark.Release + " " + p.template.Self.Value}}
}

// madeFromText matches exactly the records that Sallyport writes; any user can write others.
var madeFromText = regexp.MustCompile(`^([a-z0-9.-]{1,253}) ([A-Za-z0-9._-]{1,63}) ([A-Za-z0-9._-]{1,128})$`)

// madeFrom returns nil for any other text.
func madeFrom(text string) *v1alpha1.VSphereTemplateRelease {
	fields := madeFromText.FindStringSubmatch(text)
	if fields == nil {
		return nil
	}
	return &v1alpha1.VSphereTemplateRelease{Name: fields[1], Release: fields[2], MoRef: fields[3]}
}
