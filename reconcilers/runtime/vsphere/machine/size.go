package machine

import (
	"context"
	"slices"
	"strconv"

	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere/inventory"
)

const (
	cpuField    = "spec.cpu"
	memoryField = "spec.memory"
)

var _ runtime.Adjuster = (*Runtime)(nil)

// differences returns the differences in size between a created machine and its spec. Fields that the spec leaves to
// the template are ignored.
func (s *sighting) differences(m runtime.Machine) (all []runtime.Difference) {
	if !s.made(m) {
		return nil
	}
	config := s.vm.Config
	is := func(flag *bool) bool { return flag != nil && *flag }
	if cpu := m.Spec.CPU; cpu != nil && *cpu != config.Hardware.NumCPU {
		all = append(all, runtime.Difference{
			Field: cpuField, Is: strconv.Itoa(int(config.Hardware.NumCPU)), Wanted: strconv.Itoa(int(*cpu)),
			Live: is(config.CpuHotAddEnabled) && *cpu > config.Hardware.NumCPU && coresFor(*cpu, config.Hardware.NumCoresPerSocket) == nil,
		})
	}
	if memory := m.Spec.Memory; memory != nil && memoryMB(*memory) != int64(config.Hardware.MemoryMB) {
		more := memoryMB(*memory) - int64(config.Hardware.MemoryMB)
		all = append(all, runtime.Difference{
			Field: memoryField, Is: megabytes(int64(config.Hardware.MemoryMB)), Wanted: megabytes(memoryMB(*memory)),
			Live: is(config.MemoryHotAddEnabled) && more > 0 && more%max(config.HotPlugMemoryIncrementSize, 1) == 0 &&
				(config.HotPlugMemoryLimit == 0 || memoryMB(*memory) <= config.HotPlugMemoryLimit),
		})
	}
	return append(all, s.bootDifference(m)...)
}

func megabytes(n int64) string {
	return resource.NewQuantity(n*inventory.Mebibyte, resource.BinarySI).String()
}

// coresFor returns the cores per socket for that many CPUs, nil if they can stay.
func coresFor(cpu int32, cores *int32) *int32 {
	if cores != nil && *cores > 0 && cpu%*cores != 0 {
		return new(int32(1))
	}
	return nil
}

// resize sets the given fields of the spec's size in a configuration.
func resize(spec *types.VirtualMachineConfigSpec, m runtime.Machine, cores *int32, fields ...string) {
	if cpu := m.Spec.CPU; cpu != nil && slices.Contains(fields, cpuField) {
		spec.NumCPUs, spec.NumCoresPerSocket = *cpu, coresFor(*cpu, cores)
	}
	if memory := m.Spec.Memory; memory != nil && slices.Contains(fields, memoryField) {
		spec.MemoryMB = memoryMB(*memory)
	}
}

func fieldsOf(all []runtime.Difference, live bool) (fields []string) {
	for _, d := range all {
		if d.Live || !live {
			fields = append(fields, d.Field)
		}
	}
	return fields
}

// Adjust changes the size of a running machine, as far as its hot-plug settings allow.
func (r *Runtime) Adjust(ctx context.Context, m runtime.Machine) error {
	return Decide(func() error {
		s, err := r.existing(ctx, m)
		if err != nil || s.power() != v1alpha1.PowerRunning {
			return err
		}
		if _, err := s.busy(""); err != nil {
			return err
		}
		fields := fieldsOf(s.differences(m), true)
		if len(fields) == 0 {
			return nil
		}
		var spec types.VirtualMachineConfigSpec
		resize(&spec, m, s.vm.Config.Hardware.NumCoresPerSocket, fields...)
		return r.Reconfigure(ctx, &s.vm, spec)
	})
}
