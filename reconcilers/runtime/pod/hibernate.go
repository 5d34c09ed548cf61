package pod

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Snapshots is the registry with the snapshots of machines that are moved.
type Snapshots interface {
	// Ref returns the reference, a repository with a tag, to which an agent pushes the snapshot of a machine's
	// Migration.
	Ref(m runtime.Machine) string
	// Digest returns the digest of that snapshot, empty only if there certainly is none.
	Digest(ctx context.Context, m runtime.Machine) (string, error)
	// Discard removes all snapshots of the machine.
	Discard(ctx context.Context, m runtime.Machine) error
	// Left returns one of the machine's snapshots, of any Migration, or "" if there is none.
	Left(ctx context.Context, m runtime.Machine) (string, error)
}

// noSnapshots is why machines cannot be moved without a registry.
const noSnapshots = "no registry for snapshots is configured; an administrator can set the chart value runtimes.pod.snapshots.repository"

func errNoSnapshots() error { return runtime.NewInvalidState(nil, "%s", noSnapshots) }

// hibernation returns the part of the observation that moves depend on. The registry and the node are asked only if a
// decision depends on their answer.
func (r *Runtime) hibernation(ctx context.Context, m runtime.Machine, s *sight) (*runtime.Hibernation, error) {
	h := &runtime.Hibernation{Instance: runtime.InstanceGone, Snapshot: runtime.SnapshotUnknown}
	if s != nil {
		h.Instance, h.ID, h.Node, h.Power, h.Incarnation = s.instance(), s.pod.UID, s.pod.Spec.NodeName, s.power(), s.report.InstanceID
		h.Trouble = s.trouble(h.Instance)
	}
	if r.Snapshots == nil {
		h.Refused = noSnapshots
	}
	if m.Migration == nil || r.Snapshots == nil {
		return h, nil
	}
	ref := r.Snapshots.Ref(m)
	if s != nil {
		h.Tried = s.asked.Request == agent.Hibernate && s.asked.Snapshot == ref && !s.pending()
		h.Restored = m.Migration.Digest != "" && s.pod.Annotations[agent.AnnotationRestoreFrom] == fixed(ref, m.Migration.Digest)
		h.Fits = r.fits(s.pod, m)
		if digest, is := strings.CutPrefix(s.report.Saved, ref+"@"); is && h.Instance == runtime.InstanceAsleep {
			h.Saved = digest
		}
	}
	var err error
	if s != nil && (s.pending() || h.Instance == runtime.InstanceLeaving || h.Instance == runtime.InstanceMaking) {
		h.Unreachable, err = r.unreachable(ctx, h.Node)
	}
	if err == nil && runtime.RestsOnSnapshot(m.Migration.Step, h.Instance) {
		r.ask(ctx, m, h)
	}
	return h, err
}

// ask asks the registry. If it does not answer, the state of the snapshot is unknown.
func (r *Runtime) ask(ctx context.Context, m runtime.Machine, h *runtime.Hibernation) {
	digest, err := r.Snapshots.Digest(ctx, m)
	switch {
	case err != nil:
		h.Trouble = runtime.Message(err)
	case digest == "":
		h.Snapshot = runtime.SnapshotAbsent
	default:
		h.Snapshot, h.Digest = runtime.SnapshotPresent, digest
	}
}

// unreachable reports whether a node is gone or not ready.
func (r *Runtime) unreachable(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	node := &corev1.Node{}
	switch err := r.Live.Get(ctx, types.NamespacedName{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, failed(err, "reading Node %s", name)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue, nil
		}
	}
	return true, nil
}

func (s *sight) instance() runtime.InstanceState {
	switch {
	case !s.pod.DeletionTimestamp.IsZero():
		return runtime.InstanceLeaving
	case s.pod.Spec.NodeName == "":
		return runtime.InstanceUnplaced
	case s.report.State == agent.Failed:
		return runtime.InstanceFailed
	case !s.made():
		return runtime.InstanceMaking
	case s.report.State == agent.Hibernated:
		return runtime.InstanceAsleep
	}
	return runtime.InstanceLive
}

// trouble returns the reported reason why the Pod makes no progress.
func (s *sight) trouble(as runtime.InstanceState) string {
	switch as {
	case runtime.InstanceUnplaced:
		return s.scheduler()
	case runtime.InstanceMaking, runtime.InstanceFailed:
		return strings.TrimPrefix(s.why(), ": ")
	}
	return s.report.Message
}

// leaves returns the source instance of the machine's move, or nil if it is gone.
func (r *Runtime) leaves(ctx context.Context, m runtime.Machine) (*sight, error) {
	s, err := r.find(ctx, m)
	switch {
	case r.Snapshots == nil:
		return nil, errNoSnapshots()
	case s == nil || err != nil:
		return nil, err
	case m.Migration == nil || s.pod.UID != m.Migration.Instance:
		return nil, runtime.NewInvalidState(nil, "Pod %s is not the instance that the move of VirtualMachine %s leaves", s.pod.Name, m.Name)
	}
	return s, nil
}

// Hibernate requests hibernation from the agent.
func (r *Runtime) Hibernate(ctx context.Context, m runtime.Machine) error {
	s, err := r.leaves(ctx, m)
	if err != nil {
		return err
	}
	if s == nil || !s.made() {
		return runtime.NewNotFound(nil, "the machine of VirtualMachine %s does not exist", m)
	}
	ref := r.Snapshots.Ref(m)
	switch busy, task := s.busy(); {
	case busy == agent.Hibernate && s.asked.Snapshot == ref, s.instance() == runtime.InstanceAsleep && busy == "":
		return nil
	case busy != "":
		return s.conflict(task)
	}
	return r.order(ctx, s, agent.Order{Request: agent.Hibernate, Snapshot: ref})
}

// Wake requests the agent to wake the machine.
func (r *Runtime) Wake(ctx context.Context, m runtime.Machine) error {
	s, err := r.leaves(ctx, m)
	if err != nil {
		return err
	}
	if s == nil || !s.made() {
		return runtime.NewNotFound(nil, "the machine of VirtualMachine %s does not exist", m)
	}
	switch busy, task := s.busy(); {
	case busy == agent.Wake, s.instance() == runtime.InstanceLive && busy == "":
		return nil
	case busy != "":
		return s.conflict(task)
	}
	return r.order(ctx, s, agent.Order{Request: agent.Wake})
}

// Release deletes the Pod of a hibernated machine after checking everything again.
func (r *Runtime) Release(ctx context.Context, m runtime.Machine, fenced bool) error {
	s, err := r.leaves(ctx, m)
	if s == nil || err != nil {
		return err
	}
	if !s.pod.DeletionTimestamp.IsZero() {
		return r.fence(ctx, s, fenced)
	}
	seen, err := r.hibernation(ctx, m, s)
	if err != nil {
		return err
	}
	busy, _ := s.busy()
	proven := seen.Snapshot == runtime.SnapshotPresent && seen.Digest == m.Migration.Digest && seen.Saved == m.Migration.Digest
	if seen.Instance != runtime.InstanceAsleep || busy != "" || !proven {
		return runtime.NewInvalidState(nil, "Pod %s is not hibernated with a proven snapshot", s.pod.Name)
	}
	// A claim that was deleted while a Pod used it is removed with its data as soon as no Pod uses it.
	if _, err := r.disksFor(ctx, m, s.disks); err != nil {
		return err
	}
	return r.remove(ctx, s)
}

// fence force-deletes a Pod that is being deleted without its agent, if a user has confirmed that its node is dead.
func (r *Runtime) fence(ctx context.Context, s *sight, fenced bool) error {
	if !fenced {
		return nil
	}
	return r.remove(ctx, s, client.GracePeriodSeconds(0))
}

// Restore creates the Pod of the machine from its snapshot.
func (r *Runtime) Restore(ctx context.Context, m runtime.Machine) error {
	s, err := r.find(ctx, m)
	switch {
	case err != nil:
		return err
	case r.Snapshots == nil:
		return errNoSnapshots()
	case m.Migration == nil || m.Migration.Digest == "":
		return runtime.NewInvalidState(nil, "VirtualMachine %s has no proven snapshot", m)
	case s != nil && s.pod.Annotations[agent.AnnotationRestoreFrom] == r.restoresFrom(m):
		return nil
	case s != nil:
		return runtime.NewInvalidState(nil, "Pod %s of the machine still exists", s.pod.Name)
	}
	if err := r.alone(ctx, m); err != nil {
		return err
	}
	pod, err := r.restored(m)
	if err != nil {
		return err
	}
	disks, err := r.disksFor(ctx, m, m.Migration.Disks)
	if err != nil {
		return err
	}
	return r.create(ctx, withDisks(pod, disks))
}

// alone returns an error if the machine has a Pod: the source Pod has another name than the one to create.
func (r *Runtime) alone(ctx context.Context, m runtime.Machine) error {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(m.Namespace), client.MatchingLabels{agent.LabelMachine: string(m.UID)}); err != nil {
		return failed(err, "listing the Pods of VirtualMachine %s", m.Name)
	}
	for i := range pods.Items {
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil && owner.UID == m.UID {
			return runtime.NewInvalidState(nil, "Pod %s of the machine still exists", pods.Items[i].Name)
		}
	}
	return nil
}

// Retract deletes a restored Pod that has never run.
func (r *Runtime) Retract(ctx context.Context, m runtime.Machine, fenced bool) error {
	s, err := r.find(ctx, m)
	switch {
	case s == nil || err != nil:
		return err
	case r.Snapshots == nil || m.Migration == nil || s.pod.UID == m.Migration.Instance ||
		s.pod.Annotations[agent.AnnotationRestoreFrom] != r.restoresFrom(m):
		return runtime.NewInvalidState(nil, "Pod %s is not restored from the snapshot of the move", s.pod.Name)
	}
	switch state := s.instance(); {
	case state == runtime.InstanceUnplaced, state == runtime.InstanceFailed:
		return r.remove(ctx, s)
	case fenced && (state == runtime.InstanceMaking || state == runtime.InstanceLeaving):
		return r.fence(ctx, s, fenced)
	case state == runtime.InstanceLeaving:
		return nil
	}
	return runtime.NewInvalidState(nil, "the machine of Pod %s may have run", s.pod.Name)
}

// Discard removes all snapshots of the machine.
func (r *Runtime) Discard(ctx context.Context, m runtime.Machine) error {
	if r.Snapshots == nil {
		return nil
	}
	return r.Snapshots.Discard(ctx, m)
}

// restored returns the Pod that restores a machine from the snapshot of its move.
func (r *Runtime) restored(m runtime.Machine) (*corev1.Pod, error) {
	to, affinity := m.Migration.To, onNode(corev1.NodeSelectorOpNotIn, m.Migration.Was.NodeName)
	switch {
	case m.Migration.Back:
		affinity = atBest(m.Migration.Was.NodeName)
	case to.NodeName != "":
		affinity = onNode(corev1.NodeSelectorOpIn, to.NodeName)
	}
	pod, err := r.podOf(m, affinity, to.NodeSelector)
	if err == nil {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, agent.AnnotationRestoreFrom, r.restoresFrom(m))
	}
	return pod, err
}

// fits reports whether the target of a Pod is that of the move.
func (r *Runtime) fits(pod *corev1.Pod, m runtime.Machine) bool {
	want, err := r.restored(m)
	return err == nil && equality.Semantic.DeepEqual(pod.Spec.Affinity, want.Spec.Affinity) && maps.Equal(pod.Spec.NodeSelector, want.Spec.NodeSelector)
}

func (r *Runtime) restoresFrom(m runtime.Machine) string {
	return fixed(r.Snapshots.Ref(m), m.Migration.Digest)
}

// fixed returns the reference of a tag's content by digest.
func fixed(ref, digest string) string {
	repository := ref
	if colon := strings.LastIndex(ref, ":"); colon > strings.LastIndex(ref, "/") {
		repository = ref[:colon]
	}
	return repository + "@" + digest
}
