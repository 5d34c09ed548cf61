package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/replicas"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

// patience is for what a loaded machine takes its time for.
const patience = time.Minute

// bare is a control plane with our definitions and nothing else of Sallyport: the tests make what there is to be, and play the
// manager. Its controllers make the Pods of Deployments, which nobody runs.
var bare struct {
	sync.Once
	plane *env.ControlPlane
	err   error
}

func stopBare() error {
	if bare.plane == nil {
		return nil
	}
	return bare.plane.Stop()
}

// world is a test on the bare control plane, which it has to itself.
type world struct {
	step.T
	client.Client
	plane *env.ControlPlane
	// patience of the plugin: none, as long as nobody plays the manager.
	patience time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	bare.Do(func() {
		crds, err := charts.CRDs()
		if err == nil {
			bare.plane, err = env.Start(context.Background(), env.Options{ControllerManager: true, CRDs: crds})
		}
		bare.err = err
	})
	if bare.err != nil {
		t.Fatal(bare.err)
	}
	return newWorldOn(t, bare.plane)
}

func newWorldOn(t *testing.T, plane *env.ControlPlane) *world {
	t.Helper()
	c, err := client.New(plane.Config, client.Options{Scheme: cli.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: step.T{T: t}, Client: c, plane: plane}
}

// make creates objects, which are removed with whatever keeps them when the test ends.
func (w *world) make(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		status, _ := o.DeepCopyObject().(client.Object)
		if err := w.Create(w.Context(), o); err != nil {
			w.Fatal(err)
		}
		if vm, ok := status.(*v1alpha1.VirtualMachine); ok {
			made, _ := o.(*v1alpha1.VirtualMachine)
			made.Status = vm.Status
			w.Must(w.Status().Update(w.Context(), made))
		}
		if policy, ok := status.(*v1alpha1.RegoPolicy); ok {
			made, _ := o.(*v1alpha1.RegoPolicy)
			made.Status = policy.Status
			w.Must(w.Status().Update(w.Context(), made))
		}
		w.Cleanup(func() { w.forget(o) })
	}
}

func (w *world) forget(o client.Object) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := w.Get(ctx, client.ObjectKeyFromObject(o), o)
	if err == nil && len(o.GetFinalizers()) > 0 {
		// The garbage collector may write to it at the same time, so the patch has no resourceVersion.
		err = w.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	if err == nil {
		err = w.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		w.Errorf("removing %s: %v", o.GetName(), err)
	}
}

// namespace makes one of the test's own.
func (w *world) namespace() string {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "world-"}}
	w.make(ns)
	return ns.Name
}

// vm is a VirtualMachine with those finalizers.
func vm(namespace, name string, finalizers ...string) *v1alpha1.VirtualMachine {
	return &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
		Spec:       v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}},
	}
}

// deployment is the manager's, as Helm has made it.
func deployment(namespace string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{cli.NameLabel: cli.Product, "app.kubernetes.io/instance": "gate"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gate-sallyport", Labels: labels, Annotations: map[string]string{
			"meta.helm.sh/release-name": "gate", "meta.helm.sh/release-namespace": namespace,
		}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "sallyport"}}},
			},
		},
	}
}

// leaderName is the name of the leader's Lease.
const leaderName = "sallyport-manager"

// lease is the leader's, held by somebody and renewed a moment ago.
func lease(namespace, name, holder string, lasts time.Duration) *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Now())
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(lasts / time.Second)), AcquireTime: &now, RenewTime: &now,
		},
	}
	if name != leaderName {
		l.Labels = map[string]string{replicas.Label: "true"}
	}
	return l
}

// until waits for something to become so.
func (w *world) until(what string, so func(context.Context) (bool, error)) {
	w.Helper()
	if err := step.Await(w.Context(), so); err != nil {
		w.Fatalf("waiting until %s: %v", what, err)
	}
}

// plugin runs a command line of the plugin, and wants that exit code and those texts in what a user reads.
func (w *world) plugin(line string, code int, texts ...string) result {
	w.Helper()
	return w.pluginAs(w.plane.Kubeconfig(), line, code, texts...)
}

func (w *world) pluginAs(kubeconfig, line string, code int, texts ...string) result {
	w.Helper()
	r := plugged(w.Context(), "", kubeconfig, strings.Fields(line), w.patience)
	(&team{T: w.T}).reads(line, r, code, texts...)
	return r
}

// finalizers gives those of all VirtualMachines and operations, by kind and name.
func (w *world) finalizers() map[string]string {
	w.Helper()
	all := map[string]string{}
	vms, ops := &v1alpha1.VirtualMachineList{}, &v1alpha1.VirtualMachineOperationList{}
	if err := errors.Join(w.List(w.Context(), vms), w.List(w.Context(), ops)); err != nil {
		w.Fatal(err)
	}
	for _, o := range vms.Items {
		all["svm/"+o.Name] = strings.Join(o.Finalizers, " ")
	}
	for _, o := range ops.Items {
		all["svmop/"+o.Name] = strings.Join(o.Finalizers, " ")
	}
	return all
}

// replicasOf tells how many a Deployment is to have.
func (w *world) replicasOf(d *appsv1.Deployment) int32 {
	w.Helper()
	w.Must(w.Get(w.Context(), client.ObjectKeyFromObject(d), d))
	return ptr.Deref(d.Spec.Replicas, 1)
}

// userWith makes a user with those rules in the whole cluster.
func (w *world) userWith(name string, rules ...string) (kubeconfig string) {
	w.Helper()
	for i, rule := range rules {
		verbs, resources, _ := strings.Cut(rule, " ")
		role := fmt.Sprintf("%s-%d", name, i)
		for _, args := range [][]string{
			{"create", "clusterrole", role, "--verb=" + verbs, "--resource=" + resources},
			{"create", "clusterrolebinding", role, "--clusterrole=" + role, "--user=" + name},
		} {
			if _, errs, code := w.plane.Kubectl(w.Context(), args...); code != 0 {
				w.Fatal(errs)
			}
		}
	}
	kubeconfig, err := w.plane.UserKubeconfig(name)
	w.Must(err)
	w.Cleanup(func() { _ = os.Remove(kubeconfig) })
	return kubeconfig
}
