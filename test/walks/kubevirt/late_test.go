//go:build kubevirt

package kubevirt

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// late keeps the next request that meets with a fault from the API server until the function that it returns is called.
func late(f *fault) (arrive func() error) {
	var kept func() error
	f.set(func(_ context.Context, request func() error) error {
		kept = request
		return context.DeadlineExceeded
	})
	return func() error { return kept() }
}

// A request that the API server gets long after the runtime has given it up changes nothing: the machine has been on and off meanwhile.
func TestLateRequests(t *testing.T) {
	s := newSite(t)
	off := func(mode runtime.Mode) func(context.Context, *kubevirt.Runtime, runtime.Machine) error {
		return func(ctx context.Context, rt *kubevirt.Runtime, m runtime.Machine) error {
			return rt.PowerOff(ctx, m, mode)
		}
	}
	on := func(ctx context.Context, rt *kubevirt.Runtime, m runtime.Machine) error { return rt.PowerOn(ctx, m) }
	for name, tc := range map[string]struct {
		from v1alpha1.PowerState
		call func(context.Context, *kubevirt.Runtime, runtime.Machine) error
		of   func(*faults) *fault
	}{
		"start":                       {v1alpha1.PowerStopped, on, func(f *faults) *fault { return &f.changes }},
		"graceful-stop":               {v1alpha1.PowerRunning, off(runtime.Graceful), func(f *faults) *fault { return &f.changes }},
		"forced-stop":                 {v1alpha1.PowerRunning, off(runtime.Forced), func(f *faults) *fault { return &f.changes }},
		"forced-stop-ending-the-pods": {v1alpha1.PowerRunning, off(runtime.Forced), func(f *faults) *fault { return &f.deletes }},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := s.in(t), &faults{}
			rt, m := connect(t, s, f), machine(s.namespace(), name, true)
			_, err := rt.Ensure(t.Context(), m)
			s.Must(err)
			s.reach(rt, m, tc.from)
			if name == "forced-stop-ending-the-pods" {
				s.Agent.Ignore(m.NamespacedName, true)
			}
			arrive := late(tc.of(f))
			if err := tc.call(t.Context(), rt, m); !runtime.IsUnavailable(err) {
				t.Fatalf("a request that hung was answered with %v", err)
			}
			s.Eventually("the call has its effect", func() bool {
				_ = tc.call(t.Context(), rt, m)
				seen, err := rt.Observe(t.Context(), m)
				return err == nil && seen.Quiet() && seen.Power != tc.from
			})
			before := s.reach(rt, m, tc.from)
			if err := arrive(); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Errorf("the late request was answered with %v", err)
			}
			seen, err := rt.Observe(t.Context(), m)
			if s.Must(err); seen.Incarnation != before.Incarnation || seen.Power != tc.from || !seen.Quiet() {
				t.Errorf("it was %+v before the late request and is %+v", before, seen)
			}
		})
	}
}

// A request to attach a disk is late, too, when the disk was attached and detached meanwhile.
func TestLateAttachment(t *testing.T) {
	s, f := newSite(t), &faults{}
	h, rt := newHarness(t, s, true), connect(t, s, f)
	m, d := h.Machine(t, "late"), h.Disk(t, "data")
	_, err := rt.Ensure(t.Context(), m)
	s.Must(err)
	d.ID, err = rt.EnsureDisk(t.Context(), d)
	s.Must(err)
	m = m.With(d)
	s.reach(rt, m, v1alpha1.PowerRunning)
	has := func(disks int, call func() error) {
		t.Helper()
		s.Until(fmt.Sprintf("the machine has %d disks", disks), func() (string, bool) {
			err := call()
			seen, failed := rt.Observe(t.Context(), m)
			return fmt.Sprintf("%+v, %v, %v", seen, err, failed), failed == nil && seen.Quiet() && seen.Plugging == "" && len(seen.Disks) == disks
		})
	}
	arrive := late(&f.changes)
	if err := rt.Attach(t.Context(), m, d); !runtime.IsUnavailable(err) {
		t.Fatalf("a request that hung was answered with %v", err)
	}
	has(1, func() error { return rt.Attach(t.Context(), m, d) })
	has(0, func() error { return rt.Detach(t.Context(), m, d.UID) })
	if err := arrive(); !apierrors.IsConflict(err) {
		t.Errorf("the late request was answered with %v", err)
	}
	has(0, func() error { return nil })
}

// reach brings a machine into a power state.
func (s *site) reach(rt *kubevirt.Runtime, m runtime.Machine, power v1alpha1.PowerState) (seen runtime.Observation) {
	s.Helper()
	s.Eventually("the machine is "+string(power), func() bool {
		if power == v1alpha1.PowerRunning {
			_ = rt.PowerOn(s.Context(), m)
		} else {
			_ = rt.PowerOff(s.Context(), m, runtime.Forced)
		}
		var err error
		seen, err = rt.Observe(s.Context(), m)
		return err == nil && seen.Quiet() && seen.Power == power
	})
	return seen
}
