//go:build kubevirt

package kubevirt

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/step"
	"sallyport.dev/sallyport/test/support/virt"
)

// site is a cluster with KubeVirt.
type site struct {
	step.T
	*virt.Cluster
	folder string
}

// newSite starts everything.
func newSite(t *testing.T) *site {
	ctrl.SetLogger(klog.NewKlogr())
	s := &site{T: step.T{T: t}, folder: t.TempDir()}
	crds, err := charts.CRDs()
	s.Must(err)
	var stop func() error
	s.Cluster, stop, err = virt.Start(context.WithoutCancel(t.Context()), s.folder, crds, t.Logf)
	t.Cleanup(func() {
		s.Must(stop())
		if t.Failed() {
			t.Log(s.Logs())
		}
	})
	s.Must(err)
	return s
}

// namespace creates a namespace.
func (s *site) namespace() string {
	s.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "machines-"}}
	s.Must(s.Create(s.Context(), ns))
	return ns.Name
}

// in is the site of a part of the test.
func (s *site) in(t *testing.T) *site {
	inner := *s
	inner.T = step.T{T: t}
	return &inner
}

// shownIfFailed logs the moves of a namespace, with their Pods, if the test failed.
func (s *site) shownIfFailed(t *testing.T, namespace string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, in := context.WithoutCancel(t.Context()), client.InNamespace(namespace)
		moves, pods, instances := &virtv1.VirtualMachineInstanceMigrationList{}, &corev1.PodList{}, &virtv1.VirtualMachineInstanceList{}
		_, _, _ = s.List(ctx, moves, in), s.List(ctx, pods, in), s.List(ctx, instances, in)
		for _, m := range moves.Items {
			t.Logf("move %s: %v %v %+v", m.Name, m.DeletionTimestamp, m.Finalizers, m.Status)
		}
		for _, p := range pods.Items {
			t.Logf("Pod %s: %v %v on %q %v", p.Name, p.DeletionTimestamp, p.Labels, p.Spec.NodeName, p.Status.Phase)
		}
		for _, i := range instances.Items {
			t.Logf("instance %s: %v on %q %v, %+v", i.Name, i.DeletionTimestamp, i.Status.NodeName, i.Status.Phase, i.Status.MigrationState)
		}
		t.Log(s.LogsAbout(namespace))
	})
}
