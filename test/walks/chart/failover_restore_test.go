package chart

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// etcdIsRestored: etcd is restored from a backup under three managers, as after a failure of all API servers: the managers reach them once they are ready.
// Policies of the lost future decide no more once each has seen its Lease, which takes at most five seconds and a start, and nothing is sent to machines until an administrator resumes Sallyport.
func etcdIsRestored(t *testing.T) {
	stack.pair.add(t, "c", install.Ports{Webhook: 9446, Metrics: 8086, Health: 8087})
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { restoring{T: step.T{T: t}, vm: fmt.Sprintf("restored-%d", i)}.round() })
	}
}

type restoring struct {
	step.T
	vm string
}

func (r restoring) round() {
	r.Eventually("all replicas are ready", func() bool {
		r.Must(stack.pair.forgive())
		return stack.pair.awaitReady(r.Context()) == nil
	})
	r.Must(stack.client.Create(r.Context(), r.machine()))
	r.phase(v1alpha1.VirtualMachineRunning)
	backup := filepath.Join(r.TempDir(), "etcd")
	r.Must(stack.plane.BackUpEtcd(backup))

	// The future: an operation is only warned about, and the machine is to be off.
	r.mode(v1alpha1.ModeWarn)
	r.Eventually("replicas admit it", func() bool { return r.admitted(20) == 20 })
	r.runPolicy(v1alpha1.RunPolicyAlwaysOff)
	r.phase(v1alpha1.VirtualMachineStopped)
	for i := range 200 {
		r.Must(stack.client.Create(r.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", r.vm, i)}}))
	}

	outlive := stack.pair.managers()
	goOn, err := stack.pair.pause()
	r.Must(err)
	r.Must(stack.plane.RestoreEtcd(r.Context(), backup))
	r.Must(goOn())
	restored, stale := time.Now(), 0
	r.Eventually("every process that has outlived the restore has ended, and others answer", func() bool {
		r.Must(stack.pair.revive())
		stale += r.admitted(1)
		return !slices.ContainsFunc(outlive, runs) && stack.pair.awaitReady(r.Context()) == nil
	})
	after := time.Since(restored)
	if late := r.admitted(20); late > 0 {
		r.Errorf("%v after the restore, %d of 20 requests were decided by policies that do not exist (%d before)", after, late, stale)
	}
	r.Logf("%d requests were decided by policies that do not exist, none after %v", stale, after)
	r.Eventually("the machine says why nothing is sent", func() bool {
		r.Must(stack.pair.revive())
		c := v1alpha1.ConditionReadOnly.In(r.current().Status.Conditions)
		return c != nil && c.Message == runtime.Message(runtime.ErrRestored)
	})
	if power := r.power(); power != v1alpha1.PowerStopped {
		r.Errorf("the machine is %s, as the backup wants it", power)
	}
	r.resume()
	r.phase(v1alpha1.VirtualMachineRunning)
}

func (r restoring) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: r.vm}
}

func (r restoring) machine() *v1alpha1.VirtualMachine {
	return &v1alpha1.VirtualMachine{ObjectMeta: r.meta(), Spec: v1alpha1.VirtualMachineSpec{
		RunPolicy: v1alpha1.RunPolicyAlwaysOn, Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
	}}
}

func (r restoring) current() *v1alpha1.VirtualMachine {
	r.Helper()
	vm := &v1alpha1.VirtualMachine{ObjectMeta: r.meta()}
	r.Must(stack.client.Get(r.Context(), client.ObjectKeyFromObject(vm), vm))
	return vm
}

// phase waits for the phase, and has replicas that end started again meanwhile.
func (r restoring) phase(want v1alpha1.VirtualMachinePhase) {
	r.Helper()
	r.Until("the machine is "+string(want), func() (string, bool) {
		r.Must(stack.pair.revive())
		vm := r.current()
		return fmt.Sprintf("%+v", vm.Status), vm.Status.Phase == want
	})
}

func (r restoring) power() v1alpha1.PowerState {
	in, _ := stack.world.Instance(r.current().UID)
	return in.Power
}

func (r restoring) patch(o client.Object, patch string) {
	r.Helper()
	r.Must(stack.client.Patch(r.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// mode sets the mode of the policy that denies a Start of a machine that does not exist.
func (r restoring) mode(mode v1alpha1.PolicyMode) {
	r.patch(&v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: "operations-applicability"}}, fmt.Sprintf(`{"spec":{"mode":%q}}`, mode))
}

func (r restoring) runPolicy(policy v1alpha1.RunPolicy) {
	r.patch(r.machine(), fmt.Sprintf(`{"spec":{"runPolicy":%q}}`, policy))
}

func (r restoring) resume() {
	r.patch(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sallyport-policies"}},
		fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationRestored))
}

// admitted returns how many of so many Starts of a machine that does not exist are admitted, each on a connection of its own.
func (r restoring) admitted(of int) (n int) {
	for range of {
		stack.balancer.Reset()
		op := &v1alpha1.VirtualMachineOperation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "nobody-"},
			Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStart, VirtualMachineName: "nobody"},
		}
		if stack.client.Create(r.Context(), op, client.DryRunAll) == nil {
			n++
		}
	}
	return n
}
