package kubevirt_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeapi "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// The rest of the contract is tested with the real virt-api and virt-controller, in test/walks/kubevirt.

// sent records the requests to subresources.
type sent []string

func (s *sent) Put(_ context.Context, resource string, object types.NamespacedName, subresource string, _ any) error {
	*s = append(*s, resource+"/"+object.Name+"/"+subresource)
	return nil
}

func newRuntime(t *testing.T, objects ...client.Object) (*kubevirt.Runtime, *sent) {
	t.Helper()
	scheme := kruntime.NewScheme()
	if err := errors.Join(virtv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	api, puts := fakeapi.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&virtv1.VirtualMachine{}).Build(), &sent{}
	return &kubevirt.Runtime{Client: api, Live: api, Subresources: puts}, puts
}

func adopted() runtime.Machine {
	return runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}, UID: "uid-web",
		Spec: &v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Name: "vm"}}},
	}
}

func newVM(edit func(*virtv1.VirtualMachine)) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm-uid"}}
	vm.Spec.RunStrategy, vm.Spec.Template = new(virtv1.RunStrategyAlways), &virtv1.VirtualMachineInstanceTemplateSpec{}
	edit(vm)
	return vm
}

// instance returns an instance of the KubeVirt VirtualMachine that runs.
func instance() *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "incarnation", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "vm", UID: "vm-uid"}, virtv1.VirtualMachineGroupVersionKind),
	}}}
	vmi.Status.Phase, vmi.Status.NodeName = virtv1.Running, "node-1"
	vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
	vmi.Status.Interfaces = []virtv1.VirtualMachineInstanceNetworkInterface{{IPs: []string{"fe80::7", "10.0.0.7", "fd00::7"}}, {IPs: []string{"10.0.0.7", "127.0.0.1", "::1"}}}
	return vmi
}

// A machine that is released stays on or off as it is, and has the former run strategy if that leaves it so.
func TestReleased(t *testing.T) {
	was := func(s virtv1.VirtualMachineRunStrategy) func(*virtv1.VirtualMachine) {
		return func(vm *virtv1.VirtualMachine) { vm.Spec.RunStrategy = &s }
	}
	running := func(is bool) func(*virtv1.VirtualMachine) {
		return func(vm *virtv1.VirtualMachine) { vm.Spec.RunStrategy, vm.Spec.Running = nil, &is }
	}
	for what, tc := range map[string]struct {
		was  func(*virtv1.VirtualMachine)
		on   bool
		want virtv1.VirtualMachineRunStrategy
	}{
		"Always, on":               {was(virtv1.RunStrategyAlways), true, virtv1.RunStrategyAlways},
		"Always, off":              {was(virtv1.RunStrategyAlways), false, virtv1.RunStrategyHalted},
		"Halted, on":               {was(virtv1.RunStrategyHalted), true, virtv1.RunStrategyAlways},
		"Halted, off":              {was(virtv1.RunStrategyHalted), false, virtv1.RunStrategyHalted},
		"Manual, on":               {was(virtv1.RunStrategyManual), true, virtv1.RunStrategyManual},
		"Manual, off":              {was(virtv1.RunStrategyManual), false, virtv1.RunStrategyManual},
		"RerunOnFailure, on":       {was(virtv1.RunStrategyRerunOnFailure), true, virtv1.RunStrategyRerunOnFailure},
		"RerunOnFailure, off":      {was(virtv1.RunStrategyRerunOnFailure), false, virtv1.RunStrategyHalted},
		"running: true, then off":  {running(true), false, virtv1.RunStrategyHalted},
		"running: false, then off": {running(false), false, virtv1.RunStrategyHalted},
	} {
		t.Run(what, func(t *testing.T) {
			objects := []client.Object{newVM(tc.was)}
			if tc.on {
				objects = append(objects, instance())
			}
			r, puts := newRuntime(t, objects...)
			m := adopted()
			id, err := r.Ensure(t.Context(), m)
			seen, seeing := r.Observe(t.Context(), m)
			if err := errors.Join(err, seeing); err != nil || id != "vm" || !seen.Adopted || seen.Unusable != "" || (seen.Power == v1alpha1.PowerRunning) != tc.on || tc.on != (strings.Join(seen.Guest.Addresses, " ") == "10.0.0.7 fd00::7") {
				t.Fatalf("adopted as %q, %+v, %v", id, seen, err)
			}
			if err := r.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			vm := &virtv1.VirtualMachine{}
			if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vm"}, vm); err != nil {
				t.Fatal(err)
			}
			if now, err := vm.RunStrategy(); now != tc.want || err != nil || len(vm.Labels)+len(vm.Annotations) > 0 {
				t.Errorf("released with run strategy %s, %v, %v %v, want %s", now, err, vm.Labels, vm.Annotations, tc.want)
			}
			if len(*puts) > 0 {
				t.Errorf("sent %v", *puts)
			}
		})
	}
}

func TestNotAdopted(t *testing.T) {
	controlled := newVM(func(vm *virtv1.VirtualMachine) {
		vm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "pool.kubevirt.io/v1beta1", Kind: "VirtualMachinePool", Name: "p", UID: "p", Controller: new(true)}}
	})
	r, _ := newRuntime(t, controlled)
	if _, err := r.Ensure(t.Context(), adopted()); !runtime.IsOwnedByAnother(err) || !strings.Contains(err.Error(), "VirtualMachinePool p") {
		t.Errorf("one of a pool: got %v", err)
	}
	r, _ = newRuntime(t)
	if _, err := r.Ensure(t.Context(), adopted()); !runtime.IsNotFound(err) {
		t.Errorf("one that does not exist: got %v", err)
	}
}

// Another client may change the run strategy. Sallyport does not change it back, and a release leaves it.
func TestAnotherRunStrategy(t *testing.T) {
	r, puts := newRuntime(t, newVM(func(*virtv1.VirtualMachine) {}), instance())
	m := adopted()
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vm"}, vm); err != nil {
		t.Fatal(err)
	}
	vm.Spec.RunStrategy = new(virtv1.RunStrategyHalted)
	if err := r.Client.Update(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	seen, err := r.Observe(t.Context(), m)
	if err != nil || !strings.Contains(seen.Unusable, "Halted") || !strings.Contains(seen.Unusable, "kubectl patch virtualmachines.kubevirt.io vm -n ns") {
		t.Errorf("got %+v, %v", seen, err)
	}
	if err := r.PowerOff(t.Context(), m, runtime.Forced); !runtime.IsInvalidState(err) || len(*puts) > 0 {
		t.Errorf("powering off: got %v, sent %v", err, *puts)
	}
	if err := r.Delete(t.Context(), m); err != nil {
		t.Errorf("releasing: got %v", err)
	}
	if err := r.Live.Get(t.Context(), client.ObjectKeyFromObject(vm), vm); err != nil || *vm.Spec.RunStrategy != virtv1.RunStrategyHalted || len(vm.Labels) > 0 {
		t.Errorf("released as %v %v, %v", vm.Labels, vm.Spec, err)
	}
}

// An instance on a node that is not heard of is not a machine that is on, nor one that is off.
func TestLostNode(t *testing.T) {
	node := func(status corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		return n
	}
	for what, tc := range map[string]struct {
		phase virtv1.VirtualMachineInstancePhase
		ready bool
		nodes []client.Object
		lost  bool
	}{
		"an instance that is ready":             {phase: virtv1.Running, ready: true},
		"not ready on a node that is":           {phase: virtv1.Running, nodes: []client.Object{node(corev1.ConditionTrue)}},
		"not ready on a node that is not":       {phase: virtv1.Running, nodes: []client.Object{node(corev1.ConditionUnknown)}, lost: true},
		"not ready on a node that is gone":      {phase: virtv1.Running, lost: true},
		"unknown, though its node is ready":     {phase: virtv1.Unknown, nodes: []client.Object{node(corev1.ConditionTrue)}, lost: true},
		"an instance that has ended on it":      {phase: virtv1.Failed},
		"one that does not run there, or never": {phase: virtv1.Scheduling},
	} {
		t.Run(what, func(t *testing.T) {
			vmi := instance()
			if vmi.Status.Phase = tc.phase; !tc.ready {
				vmi.Status.Conditions = nil
			}
			r, _ := newRuntime(t, append(tc.nodes, newVM(func(*virtv1.VirtualMachine) {}), vmi)...)
			if _, err := r.Ensure(t.Context(), adopted()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Observe(t.Context(), adopted()); runtime.IsDisconnected(err) != tc.lost || err != nil && !tc.lost {
				t.Errorf("got %v", err)
			}
		})
	}
}

// KubeVirt would keep a request to start a machine whose volumes it could not migrate.
func TestManualRecovery(t *testing.T) {
	r, _ := newRuntime(t, newVM(func(vm *virtv1.VirtualMachine) {
		vm.Status.Conditions = []virtv1.VirtualMachineCondition{{
			Type: virtv1.VirtualMachineManualRecoveryRequired, Status: corev1.ConditionTrue, Reason: "VMI was removed",
		}}
	}))
	if _, err := r.Ensure(t.Context(), adopted()); err != nil {
		t.Fatal(err)
	}
	if err := r.PowerOn(t.Context(), adopted()); !runtime.IsInvalidState(err) || !strings.Contains(runtime.Message(err), "VMI was removed") {
		t.Errorf("got %v", err)
	}
}

// An instance that has ended is removed before another one starts.
func TestStartAfterAnInstance(t *testing.T) {
	vmi := instance()
	vmi.Status.Phase = virtv1.Succeeded
	r, _ := newRuntime(t, newVM(func(*virtv1.VirtualMachine) {}), vmi)
	if _, err := r.Ensure(t.Context(), adopted()); err != nil {
		t.Fatal(err)
	}
	if err := r.PowerOn(t.Context(), adopted()); err != nil {
		t.Fatal(err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vm"}, vm); err != nil {
		t.Fatal(err)
	}
	want := []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StopRequest, UID: &vmi.UID}, {Action: virtv1.StartRequest}}
	if diff := cmp.Diff(want, vm.Status.StateChangeRequests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A start that is canceled stays a task of Sallyport until its instance has ended, so that a cancellation that was cut short is repeated.
func TestCanceledStart(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "launcher", Labels: map[string]string{
		virtv1.AppLabel: "virt-launcher", virtv1.CreatedByLabel: "incarnation",
	}}}
	r, _ := newRuntime(t, newVM(func(*virtv1.VirtualMachine) {}), pod)
	var vmi *virtv1.VirtualMachineInstance // the fake API cannot create one
	broken, m, api := true, adopted(), r.Client.(client.WithWatch)
	r.Client = interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if into, is := o.(*virtv1.VirtualMachineInstance); is && vmi != nil {
				vmi.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if broken {
				return apierrors.NewInternalError(errors.New("broken"))
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	r.Live = r.Client
	_, err := r.Ensure(t.Context(), m)
	if err := errors.Join(err, r.PowerOn(t.Context(), m), carryOut(t, api)); err != nil {
		t.Fatal(err)
	}
	vmi = instance()
	vmi.Status.Phase = virtv1.Scheduled
	begun := inFlight(t, r, m)
	if len(begun) != 1 || !begun[0].Ours {
		t.Fatalf("in flight: %+v", begun)
	}
	remains := func(when string) {
		t.Helper()
		if diff := cmp.Diff(begun, inFlight(t, r, m)); diff != "" {
			t.Errorf("in flight (-before +%s):\n%s", when, diff)
		}
	}
	for _, broken = range []bool{true, false} {
		if err := r.Cancel(t.Context(), m, begun[0].ID); (err != nil) != broken {
			t.Errorf("canceling: got %v", err)
		}
		remains("once canceled")
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
		t.Errorf("the Pod of the instance is left: %v", err)
	}
	vmi.Status.Phase = virtv1.Failed
	if err := r.Cancel(t.Context(), m, begun[0].ID); err != nil {
		t.Errorf("canceling a start whose instance has ended: got %v", err)
	}
	remains("once the instance has ended")
	vmi = nil
	if err := carryOut(t, api); err != nil {
		t.Fatal(err)
	}
	if left := inFlight(t, r, m); len(left) > 0 {
		t.Errorf("in flight at the end: %+v", left)
	}
	vmi = instance()
	vmi.UID, vmi.DeletionTimestamp, vmi.Spec.TerminationGracePeriodSeconds = "another", new(metav1.Now()), new(int64(0))
	stoppedByOthers(t, r, m)
}

func stoppedByOthers(t *testing.T, r *kubevirt.Runtime, m runtime.Machine) {
	t.Helper()
	want := []runtime.Task{{ID: "poweroff-vm-uid", Kind: runtime.TaskPowerOff, By: "KubeVirt or another of its clients"}}
	if diff := cmp.Diff(want, inFlight(t, r, m)); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
}

// A stop by another client is not that of Sallyport, whatever Sallyport has announced for an instance before.
func TestStopByOthers(t *testing.T) {
	for what, announced := range map[string]string{"after a start": "PowerOn/1", "after a stop": "PowerOff/1/before"} {
		t.Run(what, func(t *testing.T) {
			vmi := instance()
			r, _ := newRuntime(t, vmi, newVM(func(vm *virtv1.VirtualMachine) {
				vm.Labels, vm.Annotations = map[string]string{kubevirt.LabelMachine: "uid-web"}, map[string]string{"sallyport.dev/sent": announced}
				vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StopRequest, UID: &vmi.UID}}
			}))
			vmi.Spec.TerminationGracePeriodSeconds = new(int64(0))
			if err := r.Client.Update(t.Context(), vmi); err != nil {
				t.Fatal(err)
			}
			stoppedByOthers(t, r, adopted())
		})
	}
}

// inFlight returns the tasks of a machine.
func inFlight(t *testing.T, r *kubevirt.Runtime, m runtime.Machine) []runtime.Task {
	t.Helper()
	seen, err := r.Observe(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return seen.InFlight
}

// carryOut removes the requests from the status of the KubeVirt VirtualMachine, as virt-controller does.
func carryOut(t *testing.T, api client.Client) error {
	t.Helper()
	vm := &virtv1.VirtualMachine{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vm"}, vm); err != nil {
		return err
	}
	vm.Status.StateChangeRequests = nil
	return api.Status().Update(t.Context(), vm)
}

func TestCreated(t *testing.T) {
	r, _ := newRuntime(t)
	m := runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}, UID: "uid", Labels: map[string]string{"app": "web"},
		Spec: &v1alpha1.VirtualMachineSpec{
			CPU: new(int32(2)), Memory: new(resource.MustParse("1001Mi")), NodeName: "node-1", NodeSelector: map[string]v1alpha1.LabelValue{"zone": "a"},
			Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Create: &v1alpha1.KubeVirtMachine{
				Preference: &v1alpha1.KubeVirtReference{Scope: v1alpha1.KubeVirtScopeNamespace, Name: "linux"},
				Disks:      []v1alpha1.KubeVirtDisk{{Name: "root", DataVolume: "root"}, {Name: "data", PersistentVolumeClaim: "data"}},
				Networks:   []v1alpha1.KubeVirtNetwork{{Name: "default"}, {Name: "storage", NetworkAttachmentDefinition: "vlan-10"}},
				CloudInit:  &v1alpha1.KubeVirtCloudInit{SecretRef: v1alpha1.CloudInitSecretReference{Name: "user-data"}},
			}}},
		},
	}
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "web"}, vm); err != nil {
		t.Fatal(err)
	}
	spec := vm.Spec.Template.Spec
	var disks []string
	for i, d := range spec.Domain.Devices.Disks {
		order := uint(0)
		if d.BootOrder != nil {
			order = *d.BootOrder
		}
		if order != 0 && order != uint(i+1) || spec.Volumes[i].Name != d.Name {
			t.Errorf("disk %d has boot order %d, and volume %s", i, order, spec.Volumes[i].Name)
		}
		disks = append(disks, d.Name)
	}
	if diff := cmp.Diff([]string{"root", "data", "cloud-init"}, disks); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
	if v := spec.Volumes[2].CloudInitNoCloud; v == nil || v.UserDataSecretRef.Name != "user-data" {
		t.Errorf("cloud-init: %+v", v)
	}
	if n := spec.Networks; len(n) != 2 || n[0].Pod == nil || n[1].Multus.NetworkName != "vlan-10" || spec.Domain.Devices.Interfaces[1].Bridge == nil {
		t.Errorf("networks: %+v", n)
	}
	if vm.Spec.Preference.Kind != "VirtualMachinePreference" || *vm.Spec.RunStrategy != virtv1.RunStrategyManual || spec.NodeSelector["zone"] != "a" {
		t.Errorf("spec: %+v", vm.Spec)
	}
	if got := spec.Domain.Memory.Guest.String(); got != "1004Mi" || spec.Domain.CPU.Sockets != 2 {
		t.Errorf("memory %s, CPU %+v", got, spec.Domain.CPU)
	}
	seen, err := r.Observe(t.Context(), m)
	if err != nil || !seen.Exists || seen.Adopted || len(seen.Differences) > 0 || vm.Labels["app"] != "web" || vm.Labels[kubevirt.LabelMachine] != "uid" {
		t.Errorf("got %+v, %v", seen, err)
	}
	m.Spec.CPU = new(int32(4))
	if seen, err := r.Observe(t.Context(), m); err != nil || len(seen.Differences) != 1 || seen.Differences[0] != (runtime.Difference{Field: "spec.cpu", Is: "2", Wanted: "4"}) {
		t.Errorf("another size: got %+v, %v", seen.Differences, err)
	}
}

func TestInstanceOf(t *testing.T) {
	move := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "move", Labels: map[string]string{virtv1.MigrationSelectorLabel: "vm"}}}
	for what, o := range map[string]client.Object{"instance": instance(), "migration": move} {
		if got := kubevirt.InstanceOf(o); got != "vm" {
			t.Errorf("%s: got %q", what, got)
		}
	}
}

// KubeVirt ends the migration of an instance that is stopped by force. A migration of ours is cancelled first.
func TestForcedStopDuringAMigration(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		mode   runtime.Mode
		stops  bool
	}{
		"of others, by force": {nil, runtime.Forced, true},
		"of others, politely": {nil, runtime.Graceful, false},
		"of ours, by force":   {map[string]string{kubevirt.LabelMachine: "uid-web"}, runtime.Forced, false},
	} {
		t.Run(name, func(t *testing.T) {
			vm := newVM(func(vm *virtv1.VirtualMachine) {
				vm.Labels, vm.Spec.RunStrategy = map[string]string{kubevirt.LabelMachine: "uid-web"}, new(virtv1.RunStrategyManual)
			})
			move := &virtv1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "move", UID: "move-uid", Labels: tc.labels}}
			if move.Labels == nil {
				move.Labels = map[string]string{}
			}
			move.Labels[virtv1.MigrationSelectorLabel], move.Spec.VMIName = "vm", "vm"
			r, _ := newRuntime(t, vm, instance(), move)
			seen, err := r.Observe(t.Context(), adopted())
			if err != nil || len(seen.InFlight) != 1 || seen.Yields() != (tc.labels == nil) {
				t.Fatalf("in flight is %+v, error %v", seen.InFlight, err)
			}
			err = r.PowerOff(t.Context(), adopted(), tc.mode)
			if runtime.IsInvalidState(err) == tc.stops || err != nil && !runtime.IsInvalidState(err) {
				t.Fatalf("got error %v", err)
			}
			after := readVM(t, r, "vm")
			if stops := len(after.Status.StateChangeRequests) == 1; stops != tc.stops {
				t.Errorf("requested is %+v", after.Status.StateChangeRequests)
			}
		})
	}
}
