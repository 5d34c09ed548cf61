//go:build kubevirt

package kubevirt

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/kubevirt/cluster"
	"sallyport.dev/sallyport/test/step"
)

// site is a cluster with KubeVirt.
type site struct {
	step.T
	*cluster.Cluster
	folder string
}

// newSite starts everything.
func newSite(t *testing.T) *site {
	ctrl.SetLogger(klog.NewKlogr())
	s := &site{T: step.T{T: t}, folder: t.TempDir()}
	crds, err := charts.CRDs()
	s.Must(err)
	var stop func() error
	s.Cluster, stop, err = cluster.Start(context.WithoutCancel(t.Context()), s.folder, crds, t.Logf)
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
