package kubevirt_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// KubeVirt ends an instance that is being started when it is stopped, and forgets a request to start one that is withdrawn. A start that
// others requested keeps nobody from stopping, deleting or releasing the machine.
func TestPowerOffDuringAStartByOthers(t *testing.T) {
	pending := instance()
	pending.Status.Phase = virtv1.Scheduling
	launcher := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "virt-launcher", Labels: map[string]string{
		virtv1.AppLabel: "virt-launcher", virtv1.CreatedByLabel: string(pending.UID),
	}}}
	stop := virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: &pending.UID}
	start := virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest}
	for name, tc := range map[string]struct {
		sent    string
		request []virtv1.VirtualMachineStateChangeRequest
		objects []client.Object
		mode    runtime.Mode
		ends    bool
		want    []virtv1.VirtualMachineStateChangeRequest
	}{
		"no node takes it, by force":  {objects: []client.Object{pending, launcher}, mode: runtime.Forced, ends: true, want: []virtv1.VirtualMachineStateChangeRequest{stop}},
		"no node takes it, politely":  {objects: []client.Object{pending, launcher}, mode: runtime.Graceful, ends: true, want: []virtv1.VirtualMachineStateChangeRequest{stop}},
		"ours":                        {sent: "PowerOn/id", objects: []client.Object{pending, launcher}, mode: runtime.Forced},
		"only requested":              {request: []virtv1.VirtualMachineStateChangeRequest{start}, mode: runtime.Forced, ends: true},
		"a restart of one that is on": {request: []virtv1.VirtualMachineStateChangeRequest{stop, start}, objects: []client.Object{instance(), launcher}, mode: runtime.Forced, ends: true, want: []virtv1.VirtualMachineStateChangeRequest{stop}},
		"a restart of one, politely":  {request: []virtv1.VirtualMachineStateChangeRequest{stop, start}, objects: []client.Object{instance(), launcher}, mode: runtime.Graceful, want: []virtv1.VirtualMachineStateChangeRequest{stop, start}},
	} {
		t.Run(name, func(t *testing.T) {
			vm := newVM(func(vm *virtv1.VirtualMachine) {
				vm.Labels, vm.Spec.RunStrategy = map[string]string{kubevirt.LabelMachine: "uid-web"}, new(virtv1.RunStrategyManual)
				vm.Annotations = map[string]string{"sallyport.dev/sent": tc.sent}
				vm.Status.StateChangeRequests = tc.request
			})
			r, _ := newRuntime(t, append(tc.objects, vm)...)
			err := r.PowerOff(t.Context(), adopted(), tc.mode)
			if runtime.IsInvalidState(err) == tc.ends || err != nil && !runtime.IsInvalidState(err) {
				t.Fatalf("got error %v", err)
			}
			if diff := cmp.Diff(tc.want, readVM(t, r, "vm").Status.StateChangeRequests); diff != "" {
				t.Errorf("requested (-want +got):\n%s", diff)
			}
			var pods corev1.PodList
			if err := r.Live.List(t.Context(), &pods); err != nil || tc.ends && len(pods.Items) > 0 {
				t.Errorf("Pods that can still begin: %d, error %v", len(pods.Items), err)
			}
		})
	}
}

// The release of an adopted machine does not wait for a start that no node takes.
func TestReleaseDuringAStartByOthers(t *testing.T) {
	pending := instance()
	pending.Status.Phase = virtv1.Scheduling
	vm := newVM(func(vm *virtv1.VirtualMachine) {
		vm.Labels, vm.Spec.RunStrategy = map[string]string{kubevirt.LabelMachine: "uid-web"}, new(virtv1.RunStrategyManual)
		vm.Annotations = map[string]string{"sallyport.dev/adopted-with-run-strategy": "Manual"}
	})
	r, _ := newRuntime(t, vm, pending)
	if err := r.Delete(t.Context(), adopted()); err != nil {
		t.Fatal(err)
	}
	if vm := readVM(t, r, "vm"); vm.Labels[kubevirt.LabelMachine] != "" {
		t.Errorf("not released: %v", vm.Labels)
	}
}
