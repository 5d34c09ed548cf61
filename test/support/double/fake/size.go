package fake

import (
	"context"
	"strconv"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// cpus is how many processors a machine is made with.
func cpus(m runtime.Machine) int32 {
	if m.Spec == nil || m.Spec.CPU == nil {
		return 1
	}
	return *m.Spec.CPU
}

// differences is how an instance that was made differs from its spec.
func (in *instance) differences(m runtime.Machine) []runtime.Difference {
	if in.Adopted || m.Spec == nil || m.Spec.CPU == nil || *m.Spec.CPU == in.CPU {
		return nil
	}
	return []runtime.Difference{{
		Field: "spec.cpu", Is: strconv.Itoa(int(in.CPU)), Wanted: strconv.Itoa(int(*m.Spec.CPU)), Live: in.HotAdd && *m.Spec.CPU > in.CPU,
	}}
}

// resize gives an instance the size that its spec says, or as much of it as can be had while it is on.
func (w *World) resize(in *instance, m runtime.Machine, live bool, by cause) {
	for _, d := range in.differences(m) {
		if d.Live || !live {
			in.CPU = *m.Spec.CPU
			w.record(Resized, m.UID, in, by)
		}
	}
}

// Adjust changes the size of a machine that is on.
func (r *Runtime) Adjust(ctx context.Context, m runtime.Machine) error {
	w := r.world
	return r.do(ctx, request{
		Call: Call{Verb: runtime.VerbAdjust, Machine: m},
		plan: func() (*work, error) {
			in, err := w.existing(m)
			if err != nil || in.Power != v1alpha1.PowerRunning {
				return nil, err
			}
			if other, _ := w.machine(m.UID).busy(""); other != nil {
				return nil, conflict(other)
			}
			return &work{commit: func(by cause) { w.resize(in, m, true, by) }}, nil
		},
	})
}
