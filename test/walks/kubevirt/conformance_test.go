//go:build kubevirt

package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/test/support/double/conformance"
	"sallyport.dev/sallyport/test/support/virt"
)

func TestConformance(t *testing.T) {
	s := newSite(t)
	t.Run("created", func(t *testing.T) {
		conformance.Run(t, func(t *testing.T) conformance.Harness { return newHarness(t, s, true) })
	})
	t.Run("a move that KubeVirt refuses", func(t *testing.T) { moveRefused(t, s) })
	t.Run("a disk that KubeVirt plugs in", func(t *testing.T) { plugInFlight(t, s) })
	t.Run("adopted", func(t *testing.T) {
		conformance.Run(t, func(t *testing.T) conformance.Harness { return newHarness(t, s, false) })
	})
	t.Run("a disk that KubeVirt plugs in as the template says", func(t *testing.T) {
		s.declarative(t)
		plugInFlight(t, s)
	})
}

// moveRefused has virt-api refuse a migration, whose reason is the message.
func moveRefused(t *testing.T, s *site) {
	s = s.in(t)
	rt, m := connect(t, s, &faults{}), machine(s.namespace(), "disks", true)
	s.Eventually("the machine is on", func() bool {
		_, err := rt.Ensure(t.Context(), m)
		s.Must(err)
		s.Must(rt.PowerOn(t.Context(), m))
		seen, err := rt.Observe(t.Context(), m)
		s.Must(err)
		return seen.Power == v1alpha1.PowerRunning && seen.Quiet()
	})
	s.Must(s.Agent.Edit(t.Context(), m.NamespacedName, func(vmi *virtv1.VirtualMachineInstance) {
		virt.SetCondition(vmi, virtv1.VirtualMachineInstanceIsMigratable, false)
		vmi.Status.Conditions = append(vmi.Status.Conditions, virtv1.VirtualMachineInstanceCondition{
			Type: virtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse,
			Reason: virtv1.VirtualMachineInstanceReasonDisksNotMigratable, Message: "PVC root is not shared", LastTransitionTime: metav1.Now(),
		})
	}))
	if err := rt.Migrate(t.Context(), m, runtime.Target{}); !runtime.IsInvalidState(err) || !strings.Contains(runtime.Message(err), "PVC root is not shared") {
		t.Errorf("got %v", err)
	}
}

var errReplyLost = errors.New("the reply was lost")

// fault is what befalls the next request.
type fault struct {
	mu   sync.Mutex
	next func(ctx context.Context, request func() error) error
}

func (f *fault) set(next func(context.Context, func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = next
}

// lose has the next request that is accepted lose its reply.
func (f *fault) lose() {
	f.set(func(_ context.Context, request func() error) error {
		if err := request(); err != nil {
			f.lose()
			return err
		}
		return errReplyLost
	})
}

func (f *fault) befall(ctx context.Context, request func() error) error {
	f.mu.Lock()
	next := f.next
	f.next = nil
	f.mu.Unlock()
	if next != nil {
		return next(ctx, request)
	}
	return request()
}

// faults are those of a runtime's requests. Changes are requests in the status, and deletes are among the writes.
type faults struct{ reads, writes, deletes, changes fault }

func (f *faults) of(verb runtime.Verb) *fault {
	switch verb {
	case runtime.VerbObserve:
		return &f.reads
	case runtime.VerbPowerOn, runtime.VerbPowerOff:
		return &f.changes
	}
	return &f.writes
}

// connect returns a runtime whose requests meet with faults. It sends no more than some requests a second, since the suite observes in a loop.
func connect(t *testing.T, s *site, f *faults) *kubevirt.Runtime {
	t.Helper()
	config := rest.CopyConfig(s.Plane.Config)
	config.QPS, config.Burst = 60, 20
	api, err := client.NewWithWatch(config, client.Options{Scheme: s.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	faulty := interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return f.reads.befall(ctx, func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return f.writes.befall(ctx, func() error { return settle(t, s, o, c.Create(ctx, o, opts...), false) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return f.writes.befall(ctx, func() error { return settle(t, s, o, c.Patch(ctx, o, patch, opts...), false) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return f.writes.befall(ctx, func() error {
				return f.deletes.befall(ctx, func() error { return settle(t, s, o, c.Delete(ctx, o, opts...), true) })
			})
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			return f.changes.befall(ctx, func() error { return c.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
	})
	subresources, err := kubevirt.NewSubresources(config)
	if err != nil {
		t.Fatal(err)
	}
	return &kubevirt.Runtime{Client: faulty, Live: faulty, Subresources: subresources}
}

func newHarness(t *testing.T, s *site, creates bool) conformance.Harness {
	namespace, f := s.namespace(), &faults{}
	s.shownIfFailed(t, namespace)
	key := func(m runtime.Machine) types.NamespacedName { return m.NamespacedName }
	h := conformance.Harness{
		Runtime: connect(t, s, f), Makes: creates,
		Reconnect: func(t *testing.T) runtime.Runtime { return connect(t, s, f) },
		Machine: func(t *testing.T, name string) runtime.Machine {
			m := machine(namespace, name, creates)
			if !creates {
				s.in(t).Must(s.Create(t.Context(), foreignVM(namespace, m.Name)))
			}
			return m
		},
		Instances: func(t *testing.T, m runtime.Machine) int {
			var list virtv1.VirtualMachineList
			s.in(t).Must(s.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{kubevirt.LabelMachine: string(m.UID)}))
			return len(list.Items)
		},
		IgnoreShutdown: func(_ *testing.T, m runtime.Machine) { s.Agent.Ignore(key(m), true) },
		HeedShutdown:   func(_ *testing.T, m runtime.Machine) { s.Agent.Ignore(key(m), false) },
		Pause:          func(t *testing.T, m runtime.Machine) { s.in(t).Must(s.Agent.SetPaused(t.Context(), key(m), true)) },
		Spoil: func(t *testing.T, m runtime.Machine) (repair func()) {
			set := func(strategy string) {
				patch := fmt.Appendf(nil, `{"spec":{"running":null,"runStrategy":%q}}`, strategy)
				vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.Name}}
				s.in(t).Must(s.Patch(t.Context(), vm, client.RawPatch(types.MergePatchType, patch)))
			}
			set("Halted")
			return func() { set("Manual") }
		},
		Hold: func(t *testing.T, m runtime.Machine, kind runtime.TaskKind) func() {
			switch kind {
			case runtime.TaskCreate:
				t.Skip("a KubeVirt VirtualMachine exists when the request to create it returns")
			case runtime.TaskReconfigure:
				t.Skip("the template of a machine that is off has the disk when the request returns; see plugInFlight")
			}
			return s.Agent.Hold(key(m), kind)
		},
		BeginForeign: func(t *testing.T, m runtime.Machine, kind runtime.TaskKind) { begin(t, s, m, kind) },
		OtherNode: func(t *testing.T, m runtime.Machine) string {
			vmi := &virtv1.VirtualMachineInstance{}
			s.in(t).Must(s.Get(t.Context(), key(m), vmi))
			return map[string]string{"node-1": "node-2", "node-2": "node-1"}[vmi.Status.NodeName]
		},
		Foreign: func(t *testing.T) (runtime.Machine, func() error) { return foreign(t, s, namespace, creates) },
		Disk: func(_ *testing.T, name string) runtime.Disk {
			return runtime.Disk{
				NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, UID: uuid.NewUUID(),
				Spec: &v1alpha1.VirtualDiskSpec{Size: resource.MustParse("8Mi"), Runtime: v1alpha1.VirtualDiskRuntime{KubeVirt: &v1alpha1.VolumeDisk{StorageClassName: virt.StorageClass}}},
			}
		},
		Source: func(t *testing.T) runtime.DiskSource { return imageClaim(t, s, namespace) },
		LoseReply: func(_ *testing.T, _ runtime.Machine, verb runtime.Verb) {
			f.of(verb).lose()
		},
		Stall: func(_ *testing.T, _ runtime.Machine, _ runtime.Verb) <-chan struct{} {
			reached := make(chan struct{})
			f.reads.set(func(ctx context.Context, _ func() error) error {
				close(reached)
				<-ctx.Done()
				return ctx.Err()
			})
			return reached
		},
	}
	if !creates {
		h.Spoil = nil // an adopted machine is released whatever its run strategy is
	}
	return h
}

// machine returns a machine with a UID that no other test has.
func machine(namespace, name string, creates bool) runtime.Machine {
	spec := &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{}}}
	if creates {
		spec.CPU, spec.Memory = new(int32(2)), new(resource.MustParse("64Mi"))
		spec.Runtime.KubeVirt.Create = &v1alpha1.KubeVirtMachine{
			Disks: []v1alpha1.KubeVirtDisk{{Name: "root", ContainerDisk: "registry.test/debian:12"}},
		}
	}
	return runtime.Machine{NamespacedName: types.NamespacedName{Namespace: namespace, Name: strings.ToLower(name)}, UID: uuid.NewUUID(), Spec: spec}
}

// foreignVM returns a KubeVirt VirtualMachine of a user.
func foreignVM(namespace, name string) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	vm.Spec.RunStrategy = new(virtv1.RunStrategyHalted)
	vm.Spec.Template = &virtv1.VirtualMachineInstanceTemplateSpec{}
	spec := &vm.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(600))
	spec.Domain.Memory = &virtv1.Memory{Guest: new(resource.MustParse("64Mi"))}
	spec.Domain.Devices.Disks = []virtv1.Disk{{Name: "root", DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{}}}}
	spec.Volumes = []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{Image: "registry.test/debian:12"}}}}
	return vm
}

// foreign returns a machine in whose place there is the machine of another owner.
func foreign(t *testing.T, s *site, namespace string, creates bool) (runtime.Machine, func() error) {
	m := machine(namespace, "foreign", creates)
	theirs := foreignVM(namespace, m.Name)
	theirs.Labels = map[string]string{kubevirt.LabelMachine: "another"}
	s.in(t).Must(s.Create(t.Context(), theirs))
	of := func(vm *virtv1.VirtualMachine) any {
		return []any{vm.Labels, vm.Spec.RunStrategy, vm.DeletionTimestamp}
	}
	return m, func() error {
		now := &virtv1.VirtualMachine{}
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(theirs), now); err != nil {
			return err
		}
		if diff := cmp.Diff(of(theirs), of(now)); diff != "" {
			return fmt.Errorf("(-before +after):\n%s", diff)
		}
		return nil
	}
}

// begin begins a task as virtctl does.
func begin(t *testing.T, s *site, m runtime.Machine, kind runtime.TaskKind) {
	t.Helper()
	if kind == runtime.TaskRelocate {
		move := &virtv1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, GenerateName: "theirs-"}}
		move.Spec.VMIName = m.Name
		s.in(t).Must(s.Create(t.Context(), move))
		return
	}
	subresources, err := kubevirt.NewSubresources(s.Plane.Config)
	s.in(t).Must(err)
	s.in(t).Must(subresources.Put(t.Context(), "virtualmachines", m.NamespacedName, "start", &virtv1.StartOptions{}))
}
