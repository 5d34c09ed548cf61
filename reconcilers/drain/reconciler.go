// Package drain moves machines off a node that is being drained. An eviction would delete the Pod, and with the Pod the machine, so policy
// machines-eviction puts it off (HTTP 429), and this reconciler creates an Evict operation instead. The client, such as kubectl drain,
// tries again until the Pod is gone. The reconciler keeps no state between two attempts.
//
// Every client that reaches the port of the webhooks can forge the review of an eviction. A cordon or taint alone does not say that machines should
// leave the node. So a machine is moved only if callers are verified, or if its node has the label [v1alpha1.LabelDrain], which users who
// may write Nodes set.
package drain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/fairqueue"
	"sallyport.dev/sallyport/reconcilers/claim"
)

// pauseAfterFailure is how long a machine is left alone after a failed move. A move interrupts the machine, and kubectl drain
// retries every 5 seconds.
const pauseAfterFailure = 5 * time.Minute

// maxName is the maximum length of an operation's name.
const maxName = 253

// Reconciler creates Evict operations for Pods whose eviction was denied for now. Every replica does, for the reviews
// that it answers.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live   client.Reader
	Events events.EventRecorder
	Now    func() time.Time
	// Evictions are Pods whose eviction was denied for now. Everything else that matters is read live.
	Evictions <-chan event.GenericEvent
	// Verified is set if only API servers can cause Evictions, because callers of the webhooks must present a client certificate.
	Verified bool
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("drain").
		WatchesRawSource(source.Channel(r.Evictions, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{NeedLeaderElection: new(false), NewQueue: fairqueue.NewQueue}).
		Complete(r)
}

// Reconcile moves the machine of a Pod that is about to be evicted. If admission denies the operation, an event on the machine says so,
// and the next eviction tries again.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	vm, err := r.drainedMachine(ctx, request.NamespacedName, pod)
	if vm == nil || err != nil {
		return reconcile.Result{}, err
	}
	moves, err := r.listMoves(ctx, vm)
	if err != nil || slices.ContainsFunc(moves, unfinished) || r.backsOff(moves) {
		return reconcile.Result{}, err
	}
	o := newEvict(vm, pod, moves)
	switch err := r.Client.Create(ctx, o); {
	case apierrors.IsAlreadyExists(err): // created by another replica, or by a request of ours whose reply was lost
		return reconcile.Result{}, nil
	case denied(err):
		r.Events.Eventf(vm, nil, corev1.EventTypeWarning, "FailedCreate", "Evict",
			"the machine stays on node %s, which is being drained: creating an Evict operation failed: %s", pod.Spec.NodeName, err)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("creating an Evict operation of VirtualMachine %s: %w", request, err)
	}
	r.Events.Eventf(vm, o, corev1.EventTypeNormal, "SuccessfulCreate", "Evict",
		"created Evict operation %s because node %s takes no more machines and the eviction of Pod %s was requested", o.Name, pod.Spec.NodeName, pod.Name)
	return reconcile.Result{}, nil
}

// drainedMachine returns the machine of a Pod if it runs on a node that is being drained, and nil otherwise.
func (r *Reconciler) drainedMachine(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) (*v1alpha1.VirtualMachine, error) {
	if err := r.Live.Get(ctx, key, pod); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || pod.Spec.NodeName == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	if err := r.Live.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); err != nil || !r.drained(node, pod) {
		return nil, client.IgnoreNotFound(err)
	}
	vm := &v1alpha1.VirtualMachine{}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: owner.Name}, vm); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if vm.UID != owner.UID || vm.Status.Phase != v1alpha1.VirtualMachineRunning || vm.Status.InstanceID != pod.Name {
		return nil, nil
	}
	return vm, nil
}

// drained reports whether a machine should leave its node once the eviction of its Pod is requested.
func (r *Reconciler) drained(node *corev1.Node, pod *corev1.Pod) bool {
	return (node.Spec.Unschedulable || repels(node, pod)) && (r.Verified || node.Labels[v1alpha1.LabelDrain] == v1alpha1.DrainEnabled)
}

// repels reports whether the node has a taint that keeps the Pod away. The cluster autoscaler and Karpenter taint a node that they empty, and
// need not cordon it (kubernetes/autoscaler: cordon-node-before-terminating). Taints of Kubernetes itself are about the state of the node.
func repels(node *corev1.Node, pod *corev1.Pod) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, true) })
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, "node.kubernetes.io/") && !tolerated
	})
}

// listMoves returns the Migrate and Evict operations of the machine.
func (r *Reconciler) listMoves(ctx context.Context, vm *v1alpha1.VirtualMachine) ([]v1alpha1.VirtualMachineOperation, error) {
	var all v1alpha1.VirtualMachineOperationList
	ofMachine := client.MatchingFields{"spec.virtualMachineName": vm.Name}
	if err := r.Live.List(ctx, &all, client.InNamespace(vm.Namespace), ofMachine); err != nil {
		return nil, fmt.Errorf("listing the operations of VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return slices.DeleteFunc(all.Items, func(o v1alpha1.VirtualMachineOperation) bool { return !claim.Moves(o.Spec.Type) }), nil
}

func unfinished(o v1alpha1.VirtualMachineOperation) bool { return !o.Finished() }

// backsOff reports whether the last move of the machine failed less than [pauseAfterFailure] ago. A move that never began, because
// of the limit on concurrent moves, interrupted nothing and does not count.
func (r *Reconciler) backsOff(moves []v1alpha1.VirtualMachineOperation) bool {
	var last *v1alpha1.VirtualMachineOperation
	for i := range moves {
		if o := &moves[i]; last == nil || last.Status.CompletionTime.Before(o.Status.CompletionTime) {
			last = o
		}
	}
	began := last != nil && last.Status.StartTime != nil && last.Status.CompletionTime != nil
	failed := began && last.Status.Phase == v1alpha1.OperationFailed
	return failed && r.Now().Before(last.Status.CompletionTime.Add(pauseAfterFailure))
}

// newEvict returns the operation. Its name follows from the Pod and all earlier moves, so that two replicas create
// only one operation. The order of the moves does not matter to the name: completion times are in seconds and can be
// equal.
func newEvict(vm *v1alpha1.VirtualMachine, pod *corev1.Pod, before []v1alpha1.VirtualMachineOperation) *v1alpha1.VirtualMachineOperation {
	of := []string{string(pod.UID)}
	for _, o := range before {
		of = append(of, string(o.UID))
	}
	slices.Sort(of[1:])
	sum := sha256.Sum256([]byte(strings.Join(of, "/")))
	end := "-drain-" + hex.EncodeToString(sum[:4])
	name := strings.TrimRight(vm.Name[:min(len(vm.Name), maxName-len(end))], "-.") + end
	return &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: name},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationEvict, VirtualMachineName: vm.Name},
	}
}

// denied reports whether the API server rejected the request.
func denied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}
