package vsphere

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// maxName is how long vCenter lets the name of a machine be.
const maxName = 80

// cloneOf is how the machine is made, and nil if it is one to adopt.
func cloneOf(m runtime.Machine) *v1alpha1.VSphereClone {
	if m.Spec == nil || m.Spec.Runtime.VSphere == nil {
		return nil
	}
	return m.Spec.Runtime.VSphere.Clone
}

// made reports whether we made the machine: nothing else has the UID of its VirtualMachine, which is younger than anything that could be
// adopted, for its instance UUID.
func (s *sighting) made(m runtime.Machine) bool {
	return cloneOf(m) != nil && strings.EqualFold(s.vm.Config.InstanceUuid, string(m.UID))
}

// inventoryName is what a machine that is made is called in its folder: its namespace and its name, as far as there is room for them,
// and enough of its UID to tell it from every other. vCenter has one machine of a name in a folder, so that of two requests for the same
// one makes it.
func inventoryName(m runtime.Machine) string {
	uid := strings.ReplaceAll(string(m.UID), "-", "")
	suffix := "-" + uid[max(0, len(uid)-12):]
	name := m.Namespace + "-" + m.Name
	return name[:min(len(name), maxName-len(suffix))] + suffix
}

// clone makes the machine. One whose making is in flight, or that was made by a request whose reply was lost, is not made again.
func (r *Runtime) clone(ctx context.Context, m runtime.Machine) (instanceID string, err error) {
	s, attempts, err := r.findMade(ctx, m)
	switch {
	case err != nil:
		return "", err
	case s != nil:
		return s.vm.Config.InstanceUuid, nil
	case len(attempts.running()) > 0:
		return "", nil
	}
	if id, err := r.succeed(ctx, m); err != nil || id != "" {
		return id, err
	}
	m = resolved(m)
	parts, err := r.parts(ctx, m)
	if err != nil {
		return "", err
	}
	spec, err := parts.cloneSpec(m)
	if err != nil {
		return "", err
	}
	err = r.server.call(ctx, func(c *vim25.Client) error {
		_, err := object.NewVirtualMachine(c, parts.template.Self).
			Clone(ctx, object.NewFolder(c, parts.folder), inventoryName(m), *spec)
		return err
	})
	return "", r.replacedMeanwhile(m, err)
}

// findMade looks for a machine that is made, and, if there is none, for what makes it. That is looked at first: a clone that ends between
// the two looks would show as nothing at all.
func (r *Runtime) findMade(ctx context.Context, m runtime.Machine) (*sighting, attempts, error) {
	s, mine, err := r.find(ctx, m)
	if err != nil || mine || m.InstanceID != "" {
		return s, nil, err
	}
	all, err := r.attempts(ctx, m)
	if err != nil || len(all.running()) > 0 {
		return nil, all, err
	}
	s, _, err = r.find(ctx, m)
	return s, all, err
}

// cloneSpec is what vCenter is asked for. The owner's marker is in it, so that there is no moment at which the machine is nobody's.
func (p *parts) cloneSpec(m runtime.Machine) (*types.VirtualMachineCloneSpec, error) {
	devices, err := p.devices(m)
	if err != nil {
		return nil, err
	}
	guest, err := guestInfo(m)
	if err != nil {
		return nil, err
	}
	config := &types.VirtualMachineConfigSpec{
		InstanceUuid: string(m.UID),
		DeviceChange: devices,
	}
	given := slices.Concat(guest, p.origin(m))
	config.ExtraConfig = append(append(p.forgotten(given), given...),
		&types.OptionValue{Key: OwnerKey, Value: string(m.UID)}, &types.OptionValue{Key: NameKey, Value: m.String()})
	resize(config, m, p.template.Config.Hardware.NumCoresPerSocket, cpuField, memoryField)
	return &types.VirtualMachineCloneSpec{
		Location: p.location(),
		Config:   config,
	}, nil
}

// forgotten takes off what the template has from a machine that it was made from: what we noted, and what its guest was given.
func (p *parts) forgotten(given []types.BaseOptionValue) (none []types.BaseOptionValue) {
	of := []string{PowerOnsKey, MoveKey, TemplateKey, MadeFromKey, userDataKey, userDataKey + encodingSuffix}
	for _, option := range p.template.Config.ExtraConfig {
		key := option.GetOptionValue().Key
		ours := slices.Contains(of, key) || strings.HasPrefix(key, DiskKey) // its disks are copies
		if _, again := object.OptionValueList(given).Get(key); ours && !again {
			none = append(none, &types.OptionValue{Key: key, Value: ""})
		}
	}
	return none
}
