// Package pod runs machines as Pods that node agents, such as virtual kubelets, turn into machines. Requests and
// reports are annotations of the Pod, defined in [sallyport.dev/sallyport/api/agent]. The Pod is all the state there
// is.
//
// The name of a Pod is derived from the VirtualMachine, its UID and the move that creates it, so that the API server
// allows only one. The VirtualMachine is its controller. The Pod stays while the machine is off, because deleting it
// removes the machine's data from the node.
package pod

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/volumes"
)

// Runtime is a runtime whose machines are Pods.
type Runtime struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live client.Reader
	// NodeSelector are labels of all nodes that run machines.
	NodeSelector map[string]string
	// Snapshots is the registry for moves. Without it machines cannot be moved.
	Snapshots Snapshots
	// Uncopied are the labels of VirtualMachines that Pods do not get.
	Uncopied runtime.Uncopied
}

var (
	_ runtime.Runtime    = (*Runtime)(nil)
	_ runtime.Hibernator = (*Runtime)(nil)
)

// find returns the machine's Pod, nil if there is none.
func (r *Runtime) find(ctx context.Context, m runtime.Machine) (*sight, error) {
	if m.UID == "" {
		return nil, runtime.NewInvalidState(nil, "VirtualMachine %s has no UID", m)
	}
	pod, err := r.get(ctx, m.Namespace, nameOf(m))
	if pod == nil && err == nil {
		if pod, err = r.takenOver(ctx, m); err != nil {
			return nil, failed(err, "reading the Pod that VirtualMachine %s took over", m.Name)
		}
	}
	if pod == nil || err != nil {
		return nil, err
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != m.UID {
		return nil, runtime.NewOwnedByAnother(nil, "Pod %s has the name of the machine of VirtualMachine %s, which does not own it. To have another created, delete it, which ends its guest: %s", pod.Name, m.Name,
			commands.Line("kubectl", "delete", "pod", pod.Name, "-n", pod.Namespace))
	}
	return see(pod, m)
}

func (r *Runtime) get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, failed(err, "reading Pod %s", name)
	}
	return pod, nil
}

// existing is find for calls that need an existing machine.
func (r *Runtime) existing(ctx context.Context, m runtime.Machine) (*sight, error) {
	s, err := r.find(ctx, m)
	if err == nil && (s == nil || !s.made()) {
		err = runtime.NewNotFound(nil, "the machine of VirtualMachine %s does not exist", m)
	}
	return s, err
}

// Observe observes the machine's Pod.
func (r *Runtime) Observe(ctx context.Context, m runtime.Machine) (runtime.Observation, error) {
	s, err := r.find(ctx, m)
	if err != nil {
		return runtime.Observation{}, err
	}
	var seen runtime.Observation
	if s != nil {
		seen = s.observation(m)
	} else if seen.Disks, err = r.disksOfNone(ctx, m); err != nil {
		return runtime.Observation{}, err
	}
	if seen.Hibernation, err = r.hibernation(ctx, m, s); err != nil {
		return runtime.Observation{}, err
	}
	return runtime.Travelling(m, seen, nameOf(m)), nil
}

// Ensure creates the Pod; an agent creates the machine. While the Pod is unscheduled it returns an InvalidState error
// with the reason.
func (r *Runtime) Ensure(ctx context.Context, m runtime.Machine) (string, error) {
	s, err := r.find(ctx, m)
	switch {
	case err != nil:
		return "", err
	case s == nil:
		return "", r.first(ctx, m)
	case !s.pod.DeletionTimestamp.IsZero():
		return "", runtime.NewInvalidState(nil, "Pod %s of an earlier attempt is still being deleted", s.pod.Name)
	case s.ended():
		return "", runtime.NewInvalidState(nil, "Pod %s has ended%s: delete it, and Sallyport creates the machine again", s.pod.Name, s.why())
	case s.pod.Spec.NodeName == "":
		return "", s.unscheduled()
	case !s.made():
		return "", nil
	}
	return s.pod.Name, nil
}

// first creates the Pod with all disks of the spec: it cannot get one later.
func (r *Runtime) first(ctx context.Context, m runtime.Machine) error {
	if did, err := r.succeed(ctx, m); did || err != nil {
		return err
	}
	disks, err := r.reserved(ctx, m)
	if err != nil {
		return err
	}
	disks = slices.DeleteFunc(disks, func(d held) bool { return !m.Spec.Names(d.Name) })
	if err := complete(m, disks); err != nil {
		return err
	}
	for _, d := range disks {
		users, err := r.users(ctx, d.claim, true)
		if err != nil {
			return err
		}
		if other, used := volumes.ByOthers(users, m.UID); used {
			return runtime.NewInUse("VirtualDisk %s: %s uses PersistentVolumeClaim %s, and two machines must not write to one disk: delete the Pod, or release its machine",
				d.Name, other.Name, d.claim.Name)
		}
	}
	if err := r.asleep(ctx, m, disks); err != nil {
		return err
	}
	pod, err := r.podOf(m, onNode(corev1.NodeSelectorOpIn, m.Spec.NodeName), nil)
	if err != nil {
		return err
	}
	return r.create(ctx, withDisks(pod, disks))
}

func (r *Runtime) create(ctx context.Context, pod *corev1.Pod) error {
	err := r.Client.Create(ctx, pod)
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return runtime.NewInvalidSpec(err, "%s: the namespace does not admit Pod %s without more: %s", templateField, pod.Name, err)
	}
	return failed(err, "creating Pod %s", pod.Name)
}

// PowerOn requests a power-on from the agent.
func (r *Runtime) PowerOn(ctx context.Context, m runtime.Machine) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	busy, task := s.busy()
	switch {
	case busy == agent.PowerOn, s.power() == v1alpha1.PowerRunning && busy == "":
		return nil
	case busy != "":
		return s.conflict(task)
	}
	if differ := s.differences(m); len(differ) > 0 {
		if s.pod.Status.QOSClass == corev1.PodQOSBestEffort {
			return runtime.NewInvalidSpec(nil, "%s: Pod %s was created without a size, and Kubernetes gives it none later: remove the size, "+
				"or delete VirtualMachine %s and create it again", differ[0].Field, s.pod.Name, m.Name)
		}
		if err := r.resize(ctx, s, m); err != nil {
			if apierrors.IsForbidden(err) { // also if the node lacks resources
				return runtime.NewInvalidSpec(err, "%s: Pod %s cannot be resized: %s", differ[0].Field, s.pod.Name, err)
			}
			return failed(err, "%s: resizing Pod %s", differ[0].Field, s.pod.Name)
		}
	}
	return r.order(ctx, s, agent.Order{Request: agent.PowerOn})
}

// PowerOff requests a guest shutdown or a power-off from the agent.
func (r *Runtime) PowerOff(ctx context.Context, m runtime.Machine, mode runtime.Mode) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	busy, task := s.busy()
	switch {
	case busy == agent.PowerOff, s.power() == v1alpha1.PowerStopped && busy == "":
		return nil
	case busy != "":
		return s.conflict(task)
	case mode == runtime.Forced:
		return r.order(ctx, s, agent.Order{Request: agent.PowerOff})
	case s.power() == v1alpha1.PowerPaused:
		return runtime.NewInvalidState(nil, "the guest of VirtualMachine %s is paused and cannot be asked to shut down: start it first, or use --force", m)
	case s.report.Tools == agent.ToolsNotRunning:
		return runtime.NewToolsUnavailable(nil, "the guest of VirtualMachine %s has no running agent to request a shutdown from", m)
	case s.pending() && s.asked.Request == agent.Shutdown:
		return nil
	}
	return r.order(ctx, s, agent.Order{Request: agent.Shutdown})
}

// Cancel asks the agent to cancel a power-on or the hibernation of a move.
func (r *Runtime) Cancel(ctx context.Context, m runtime.Machine, task string) error {
	s, err := r.find(ctx, m)
	if s == nil || err != nil {
		return err
	}
	if busy, is := s.busy(); busy != agent.PowerOn && busy != agent.Hibernate || is.ID != task {
		return nil
	}
	return r.order(ctx, s, agent.Order{Request: agent.Withdraw})
}

// Delete deletes the Pod, and the machine with it. An unscheduled Pod can always be deleted. If the machine is only a
// snapshot, Delete removes that.
func (r *Runtime) Delete(ctx context.Context, m runtime.Machine) error {
	s, err := r.find(ctx, m)
	if s == nil && err == nil && m.Migration != nil {
		return r.Discard(ctx, m)
	}
	if s == nil || err != nil {
		return err
	}
	busy, task := s.busy()
	switch {
	case !s.pod.DeletionTimestamp.IsZero():
		return nil
	case s.pod.Spec.NodeName == "", s.ended():
	case busy != "":
		return s.conflict(task)
	case s.power() != v1alpha1.PowerStopped:
		return runtime.NewInvalidState(nil, "VirtualMachine %s is not off", m)
	}
	return r.remove(ctx, s)
}

func (r *Runtime) remove(ctx context.Context, s *sight, options ...client.DeleteOption) error {
	same := client.Preconditions{UID: &s.pod.UID, ResourceVersion: &s.pod.ResourceVersion}
	if err := r.Client.Delete(ctx, s.pod, append(options, same)...); err != nil && !apierrors.IsNotFound(err) {
		return failed(err, "deleting Pod %s", s.pod.Name)
	}
	return nil
}

// order writes a new request for the agent with the Pod's resourceVersion. A delayed request fails, or is observed in
// flight and undone like any other.
func (r *Runtime) order(ctx context.Context, s *sight, order agent.Order) error {
	changed := s.pod.DeepCopy()
	order.Round = s.round() + 1
	for key, value := range order.Annotations() {
		if value == "" {
			delete(changed.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, key, value)
	}
	if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(s.pod, client.MergeFromWithOptimisticLock{})); err != nil {
		return failed(err, "asking for %s in the annotations of Pod %s", order.Request, s.pod.Name)
	}
	return nil
}

// resize changes what the spec sets of the container. Its other requests stay, which cannot be removed. A limit, such as of a LimitRange,
// follows the request where it was equal or would be lower: requests cannot exceed limits, and the quality of service cannot change. The
// strategic merge patch leaves what these types do not know.
func (r *Runtime) resize(ctx context.Context, s *sight, m runtime.Machine) error {
	changed := s.pod.DeepCopy()
	resources := &machineIn(changed).Resources
	if resources.Requests == nil {
		resources.Requests = corev1.ResourceList{}
	}
	for name, want := range requests(m) {
		if limit, is := resources.Limits[name]; is && (limit.Cmp(want) < 0 || limit.Cmp(resources.Requests[name]) == 0) {
			resources.Limits[name] = want
		}
		resources.Requests[name] = want
	}
	if err := r.Client.SubResource("resize").Patch(ctx, changed, client.StrategicMergeFrom(s.pod, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	s.pod = changed // the new version, for the next patch
	return nil
}

// failed converts an error of the API server.
func failed(err error, format string, args ...any) error {
	return runtime.APIFailure(err, format, args...)
}
