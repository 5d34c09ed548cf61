package machine

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

// maxName is vCenter's maximum length of a machine name.
const maxName = 80

// cloneOf returns how to create the machine, nil if it is adopted.
func cloneOf(m runtime.Machine) *v1alpha1.VSphereClone {
	if m.Spec == nil || m.Spec.Runtime.VSphere == nil {
		return nil
	}
	return m.Spec.Runtime.VSphere.Clone
}

// made reports whether Sallyport created the machine: only then is its instance UUID the UID of its VirtualMachine,
// which is newer than any machine to adopt.
func (s *sighting) made(m runtime.Machine) bool {
	return cloneOf(m) != nil && strings.EqualFold(s.vm.Config.InstanceUuid, string(m.UID))
}

// inventoryName returns the name of a created machine in its folder: namespace and name, truncated, and a unique part
// of the UID. vCenter allows a name once per folder, so that of two requests for the same machine only one succeeds.
func inventoryName(m runtime.Machine) string {
	uid := strings.ReplaceAll(string(m.UID), "-", "")
	suffix := "-" + uid[max(0, len(uid)-12):]
	name := m.Namespace + "-" + m.Name
	return name[:min(len(name), maxName-len(suffix))] + suffix
}

// clone creates the machine, unless its creation is in flight or it was created by a request whose reply was lost.
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
	p, err := r.placement(ctx, m)
	if err != nil {
		return "", err
	}
	spec, err := p.cloneSpec(m)
	if err != nil {
		return "", err
	}
	err = r.Call(ctx, func(c *vim25.Client) error {
		_, err := object.NewVirtualMachine(c, p.template.Self).
			Clone(ctx, object.NewFolder(c, p.folder), inventoryName(m), *spec)
		return err
	})
	return "", r.replacedMeanwhile(m, err)
}

// findMade returns the created machine or, if there is none, the tasks that create it. The tasks are read first:
// otherwise a clone that ends between the two reads would be missed.
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

// cloneSpec returns the request to vCenter. It contains the owner mark, so that the machine never exists without an
// owner.
func (p *placement) cloneSpec(m runtime.Machine) (*types.VirtualMachineCloneSpec, error) {
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

// forgotten returns the options that clear what the template has in extraConfig: our keys and its guest's data.
func (p *placement) forgotten(given []types.BaseOptionValue) (none []types.BaseOptionValue) {
	of := []string{PowerOnsKey, MoveKey, inventory.TemplateKey, MadeFromKey, userDataKey, userDataKey + encodingSuffix}
	for _, option := range p.template.Config.ExtraConfig {
		key := option.GetOptionValue().Key
		if _, again := object.OptionValueList(given).Get(key); slices.Contains(of, key) && !again {
			none = append(none, &types.OptionValue{Key: key, Value: ""})
		}
	}
	return none
}
