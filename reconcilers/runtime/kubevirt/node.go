package kubevirt

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// lost returns an error if the node of a running instance is not heard of: the instance may have ended or still run. KubeVirt shows it as
// running, and not ready, until its Pod is gone, so that no second one starts.
func (r *Runtime) lost(ctx context.Context, s *sight) error {
	if !s.on() || s.vmi.Status.Phase == virtv1.Running && s.is(virtv1.VirtualMachineInstanceReady) {
		return nil
	}
	name, node := s.vmi.Status.NodeName, &corev1.Node{}
	switch err := r.Live.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return runtime.APIFailure(err, "reading node %s", name)
	case s.vmi.Status.Phase == virtv1.Running && ready(node):
		return nil
	}
	return runtime.NewDisconnected("VirtualMachineInstance %s was last seen on node %s, which is not ready. KubeVirt ends it when its Pod is gone: "+
		"if the node is off for good, delete it or taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", s.vmi.Name, name)
}

// ready reports whether the cluster hears of a node.
func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
