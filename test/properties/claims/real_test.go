//go:build kubevirt

package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	virtv1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
	"sallyport.dev/sallyport/test/support/virt"
)

// TestRealKubeVirt lives a few of the lives of [TestKubeVirt] with the real virt-api, virt-controller and garbage collector.
func TestRealKubeVirt(t *testing.T) {
	set(t, "rapid.checks", "20") // -short: a fifth, with half of the steps
	set(t, "rapid.shrinktime", "0s")
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	c, stop, err := virt.Start(context.WithoutCancel(t.Context()), t.TempDir(), crds, t.Logf)
	t.Cleanup(func() { _ = stop() })
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Unvalidated(t.Context(), "virtualmachinerestore-validator.snapshot.kubevirt.io"); err != nil { // it demands snapshots
		t.Fatal(err)
	}
	subresources, err := kubevirt.NewSubresources(c.Plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := onCluster(t, c)
		lives(w, newKubeVirt(w, &real{w, subresources}))
		w.must(w.Delete(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
	})
}

// onCluster returns a world that is a namespace of a cluster.
func onCluster(t *rapid.T, c *virt.Cluster) *world {
	api, err := client.NewWithWatch(c.Plane.Config, client.Options{Scheme: c.Scheme})
	if err != nil {
		t.Fatalf("%s", err)
	}
	w := &world{T: t, ctx: context.Background(), class: virt.StorageClass, now: time.Now()}
	w.WithWatch = interceptor.NewClient(api, interceptor.Funcs{List: listIndexed, Update: updateLatest, SubResourceUpdate: updateLatestStatus})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "claims-"}}
	w.must(w.Create(w.ctx, namespace))
	w.namespace = namespace.Name
	w.begin()
	return w
}

// listIndexed lists by the indexes of the manager's cache, which an API server does not have.
func listIndexed(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	selector := options.FieldSelector
	options.FieldSelector = nil
	if err := c.List(ctx, into, options); err != nil || selector == nil {
		return err
	}
	switch all := into.(type) {
	case *v1alpha1.VirtualDiskList:
		all.Items = slices.DeleteFunc(all.Items, func(d v1alpha1.VirtualDisk) bool {
			return !selector.Matches(fields.Set{v1alpha1.FieldDiskHolder: strings.Join(holder(&d), "")})
		})
	case *v1alpha1.VirtualMachineOperationList:
		all.Items = slices.DeleteFunc(all.Items, func(op v1alpha1.VirtualMachineOperation) bool {
			return !selector.Matches(fields.Set{fieldMachine: op.Spec.VirtualMachineName})
		})
	default:
		return fmt.Errorf("%T has no index", into)
	}
	return nil
}

// updateLatest and updateLatestStatus have users overwrite what virt-controller has written since they read it.
func updateLatest(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
	return latest(ctx, c, o, func() error { return c.Update(ctx, o, opts...) })
}

func updateLatestStatus(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return latest(ctx, c, o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
}

func latest(ctx context.Context, c client.Reader, o client.Object, update func() error) error {
	if _, theirs := o.(*virtv1.VirtualMachine); !theirs {
		return update()
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := &virtv1.VirtualMachine{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
			return client.IgnoreNotFound(err)
		}
		o.SetResourceVersion(now.ResourceVersion)
		return update()
	})
}

// real is the real virt-controller, and the agent that plays the nodes.
type real struct {
	*world
	api kubevirt.Subresources
}

func (*real) knowsDataVolumes() bool                { return false }
func (r *real) subresources() kubevirt.Subresources { return r.api }

// patience is how long it waits for virt-controller, which may be unable to do what a user asks.
const patience = 5 * time.Second

// runs waits until virt-controller has nothing to do.
func (r *real) runs(k *kubeVirt) {
	why := ""
	err := wait.PollUntilContextTimeout(r.ctx, 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		why = r.pending(k)
		return why == "", nil
	})
	if err != nil {
		r.Logf("virt-controller goes on with %s", why)
	}
}

// pending returns what virt-controller or Kubernetes has yet to do, or "".
func (r *real) pending(k *kubeVirt) string {
	claims := map[string]bool{}
	for _, c := range r.claims() {
		claims[c.Name] = c.Status.Phase == corev1.ClaimBound && c.DeletionTimestamp.IsZero()
		if !c.DeletionTimestamp.IsZero() && k.naming(c.Name, "") == "" || c.DeletionTimestamp.IsZero() && c.Status.Phase != corev1.ClaimBound {
			return "claim " + c.Name
		}
	}
	vms := k.vms()
	for i := range vms {
		vm := &vms[i]
		vmi := k.instance(vm.Name)
		strategy, _ := vm.RunStrategy()
		starts := strategy == virtv1.RunStrategyAlways && vm.Status.RestoreInProgress == nil
		switch {
		case !vm.DeletionTimestamp.IsZero(), len(vm.Status.StateChangeRequests) > 0,
			vmi == nil && starts, vmi != nil && strategy == virtv1.RunStrategyHalted, vmi != nil && !settled(vm, vmi, claims):
			return "machine " + vm.Name
		}
	}
	return ""
}

// settled reports whether an instance has what its machine has, or waits for a claim.
func settled(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance, claims map[string]bool) bool {
	if !vmi.DeletionTimestamp.IsZero() {
		return false
	}
	for _, claim := range claimsBy(&vmi.Spec) {
		if !claims[claim] {
			return true
		}
	}
	if vmi.Status.Phase != virtv1.Running {
		return false
	}
	hot := func(v virtv1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable
	}
	for _, v := range slices.Concat(vm.Spec.Template.Spec.Volumes, vmi.Spec.Volumes) {
		in := func(all []virtv1.Volume) bool {
			return slices.ContainsFunc(all, func(other virtv1.Volume) bool { return other.Name == v.Name })
		}
		if hot(v) && in(vm.Spec.Template.Spec.Volumes) != in(vmi.Spec.Volumes) {
			return false
		}
	}
	return !slices.ContainsFunc(vmi.Status.VolumeStatus, func(s virtv1.VolumeStatus) bool {
		return s.HotplugVolume != nil && s.Phase != virtv1.VolumeReady
	})
}
