// Package kubevirt runs machines as VirtualMachines of KubeVirt, in this cluster. The KubeVirt VirtualMachine is all the state there is: a
// label has the owner mark, and its run strategy is Manual, so that KubeVirt neither starts nor stops the machine on its own.
//
// A machine is on while its VirtualMachineInstance runs, the UID of which is the incarnation. Power is requested in the status of the
// VirtualMachine, where the subresources that virtctl uses request it, too.
package kubevirt

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Runtime is a runtime whose machines are VirtualMachines of KubeVirt.
type Runtime struct {
	// Client writes.
	Client client.Client
	// Live reads from the API server, without a cache.
	Live client.Reader
	// Subresources resumes paused machines, and answers dry runs.
	Subresources Subresources
	// Uncopied are the labels of VirtualMachines that KubeVirt VirtualMachines do not get.
	Uncopied runtime.Uncopied

	wakes wakes
}

var (
	_ runtime.Runtime  = (*Runtime)(nil)
	_ runtime.Migrator = (*Runtime)(nil)
)

// attempts is how often a call begins anew. virt-controller writes its objects several times when a machine is created, started or stopped.
const attempts = 5

// decide calls begin, which reads the machine and begins what is due, again while the API server rejects that because the machine has changed
// since it was read: nothing was done then.
func decide(begin func() error) (err error) {
	for range attempts {
		if err = begin(); !apierrors.IsConflict(err) {
			break
		}
	}
	return err
}

// find returns what exists of the machine, nil if there is nothing with its mark.
func (r *Runtime) find(ctx context.Context, m runtime.Machine) (*sight, error) {
	s, err := r.look(ctx, m)
	if s != nil && s.unadopted {
		return nil, err
	}
	return s, err
}

// look is find that also returns the KubeVirt VirtualMachine that the spec names, and that has no mark. It reads what is in flight before what
// that changes.
func (r *Runtime) look(ctx context.Context, m runtime.Machine) (*sight, error) {
	if m.UID == "" {
		return nil, runtime.NewInvalidState(nil, "VirtualMachine %s has no UID", m)
	}
	key := types.NamespacedName{Namespace: m.Namespace, Name: nameOf(m)}
	moves, err := r.moves(ctx, key)
	if err != nil {
		return nil, err
	}
	vm, err := r.get(ctx, key)
	switch {
	case vm == nil || err != nil:
		return nil, err
	case vm.Labels[LabelMachine] == string(m.UID):
	case vm.Labels[LabelMachine] == "" && m.Spec.Adopts(): // Ensure decides about it
	case isEarlier(vm, m): // here, too
		return nil, nil
	default:
		return nil, r.ofAnother(ctx, m, vm)
	}
	s := &sight{vm: vm, unadopted: vm.Labels[LabelMachine] == ""}
	for i := range moves {
		if moves[i].IsFinal() {
			s.ended = append(s.ended, moves[i])
		} else {
			s.moves = append(s.moves, moves[i])
		}
	}
	vmi := &virtv1.VirtualMachineInstance{}
	switch err := r.Live.Get(ctx, key, vmi); {
	case err == nil && metav1.IsControlledBy(vmi, vm):
		s.vmi = vmi
	case client.IgnoreNotFound(err) != nil:
		return nil, runtime.APIFailure(err, "reading VirtualMachineInstance %s", key.Name)
	}
	if s.leaving() && s.on() {
		if s.killed, err = r.killed(ctx, vmi); err != nil {
			return nil, err
		}
	}
	s.plugs = plugsOf(s.vm, s.vmi, m)
	return s, nil
}

// get returns a KubeVirt VirtualMachine, nil if there is none.
func (r *Runtime) get(ctx context.Context, key types.NamespacedName) (*virtv1.VirtualMachine, error) {
	vm := &virtv1.VirtualMachine{}
	switch err := r.Live.Get(ctx, key, vm); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, runtime.APIFailure(err, "reading KubeVirt VirtualMachine %s", key.Name)
	}
	return vm, nil
}

// existing is find for calls that need an existing machine.
func (r *Runtime) existing(ctx context.Context, m runtime.Machine) (*sight, error) {
	s, err := r.find(ctx, m)
	if s == nil && err == nil {
		err = runtime.NewNotFound(nil, "the machine of VirtualMachine %s does not exist", m)
	}
	return s, err
}

// Observe reads the KubeVirt VirtualMachine, its instance and its migrations.
func (r *Runtime) Observe(ctx context.Context, m runtime.Machine) (runtime.Observation, error) {
	s, err := r.look(ctx, m)
	if s == nil || err != nil {
		return runtime.Observation{}, err
	}
	if s.unadopted {
		seen := s.observation(m).BeforeAdoption()
		seen.InFlight = nil // KubeVirt goes on with it when the machine is adopted
		return seen, nil
	}
	if err := r.lost(ctx, s); err != nil {
		return runtime.Observation{}, err
	}
	return s.observation(m), nil
}

// Ensure creates the KubeVirt VirtualMachine, or adopts it.
func (r *Runtime) Ensure(ctx context.Context, m runtime.Machine) (instanceID string, err error) {
	err = decide(func() (err error) {
		instanceID, err = r.ensure(ctx, m)
		return err
	})
	return instanceID, err
}

func (r *Runtime) ensure(ctx context.Context, m runtime.Machine) (string, error) {
	s, err := r.find(ctx, m)
	switch {
	case err != nil:
		return "", err
	case s != nil && !s.vm.DeletionTimestamp.IsZero():
		return "", runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s is being deleted", s.vm.Name)
	case s != nil:
		return s.vm.Name, nil
	}
	vm, err := r.get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: nameOf(m)})
	switch {
	case err != nil:
		return "", err
	case vm != nil && !vm.DeletionTimestamp.IsZero():
		return "", runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s is being deleted", vm.Name)
	case vm != nil && isEarlier(vm, m):
		return r.succeed(ctx, m, vm)
	case vm == nil && m.Spec.Adopts():
		return "", runtime.NewNotFound(nil, "spec.runtime.kubevirt: KubeVirt VirtualMachine %s does not exist", nameOf(m))
	case vm != nil:
		return r.adopt(ctx, m, vm)
	}
	m.Labels = r.Uncopied.Rest(m.Labels)
	o, options, err := templated(newVM(m), m)
	if err != nil {
		return "", err
	}
	if err := r.Client.Create(ctx, o, options...); err != nil {
		return "", runtime.APIFailure(err, "creating KubeVirt VirtualMachine %s", o.GetName())
	}
	return o.GetName(), nil
}

// PowerOn starts the machine with the size and the placement of its spec, or resumes a paused one.
func (r *Runtime) PowerOn(ctx context.Context, m runtime.Machine) error {
	return decide(func() error { return r.powerOn(ctx, m) })
}

func (r *Runtime) powerOn(ctx context.Context, m runtime.Machine) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	switch {
	case s.starting(), s.power() == v1alpha1.PowerRunning && !s.stopping():
		return nil
	case s.busy() != nil:
		return s.conflict()
	case s.power() == v1alpha1.PowerPaused: // without a precondition; one that arrives late resumes the machine if it was paused again
		return r.put(ctx, s, instances, "unpause", &virtv1.UnpauseOptions{})
	case s.unusable() != "":
		return runtime.NewInvalidState(nil, "%s", s.unusable())
	case s.broken() != "":
		return runtime.NewInvalidState(nil, "KubeVirt VirtualMachine %s needs manual recovery: %s", s.vm.Name, s.broken())
	}
	end, err := r.wakes.turn(ctx, m.Namespace)
	if err != nil {
		return err
	}
	defer end()
	if err := r.alone(ctx, s, m); err != nil {
		return err
	}
	if err := r.announce(ctx, s, runtime.TaskPowerOn, func(vm *virtv1.VirtualMachine) { configure(vm, m) }); err != nil {
		return err
	}
	return r.start(ctx, s)
}

// PowerOff has KubeVirt shut the guest down, or end the instance at once. KubeVirt powers a guest off that does not shut down within the
// grace period of its instance.
func (r *Runtime) PowerOff(ctx context.Context, m runtime.Machine, mode runtime.Mode) error {
	return decide(func() error { return r.powerOff(ctx, m, mode) })
}

func (r *Runtime) powerOff(ctx context.Context, m runtime.Machine, mode runtime.Mode) error {
	s, err := r.existing(ctx, m)
	if err != nil {
		return err
	}
	asks := mode == runtime.Graceful && s.on() // while others start it, there is no guest to ask
	switch {
	case s.stopping(), !s.on() && s.busy() == nil:
		return nil
	case s.busy() != nil && (asks || !s.yields()):
		return s.conflict()
	case s.unusable() != "":
		return runtime.NewInvalidState(nil, "%s", s.unusable())
	case s.noInstance():
		return r.withdraw(ctx, s)
	case !asks:
	case s.power() == v1alpha1.PowerPaused:
		return runtime.NewInvalidState(nil, "the guest of VirtualMachine %s is paused and cannot be asked to shut down: start it first, or use --force", m)
	case s.leaving(): // the guest has been asked
		return nil
	}
	if err := r.announce(ctx, s, runtime.TaskPowerOff, nil); err != nil {
		return err
	}
	if err := r.stop(ctx, s); err != nil || asks {
		return err
	}
	return r.kill(ctx, s)
}

// Cancel ends an instance that is being started, withdraws a request to start one, or deletes the migration.
func (r *Runtime) Cancel(ctx context.Context, m runtime.Machine, task string) error {
	return decide(func() error { return r.cancel(ctx, m, task) })
}

func (r *Runtime) cancel(ctx context.Context, m runtime.Machine, task string) error {
	s, err := r.find(ctx, m)
	if s == nil || err != nil {
		return err
	}
	tasks := s.tasks()
	i := slices.IndexFunc(tasks, func(t runtime.Task) bool { return t.ID == task && t.Ours })
	switch {
	case i < 0:
		return nil
	case tasks[i].Kind == runtime.TaskRelocate:
		return r.cancelMove(ctx, s, task)
	case tasks[i].Kind != runtime.TaskPowerOn, s.noInstance() && !s.starting():
		return nil
	case s.noInstance():
		return r.withdraw(ctx, s)
	}
	if err := r.announceCancel(ctx, s); err != nil {
		return err
	}
	if err := r.stop(ctx, s); err != nil {
		return err
	}
	return r.kill(ctx, s)
}

// Delete deletes the KubeVirt VirtualMachine, or releases one that was adopted.
func (r *Runtime) Delete(ctx context.Context, m runtime.Machine) error {
	return decide(func() error { return r.remove(ctx, m) })
}

func (r *Runtime) remove(ctx context.Context, m runtime.Machine) error {
	s, err := r.find(ctx, m)
	if s == nil || err != nil {
		return err
	}
	switch {
	case !s.vm.DeletionTimestamp.IsZero():
		return nil
	case s.busy() != nil && (!adopted(s.vm, m) || !s.yields() || len(s.verbs()) > 0):
		return s.conflict()
	case adopted(s.vm, m):
		return r.release(ctx, s, m)
	case s.unusable() != "":
		return runtime.NewInvalidState(nil, "%s", s.unusable())
	case s.power() != v1alpha1.PowerStopped:
		return runtime.NewInvalidState(nil, "VirtualMachine %s is not off", m)
	}
	if err := r.keepClaims(ctx, s, m); err != nil {
		return err
	}
	same := client.Preconditions{UID: &s.vm.UID, ResourceVersion: &s.vm.ResourceVersion}
	if err := r.Client.Delete(ctx, s.vm, same); client.IgnoreNotFound(err) != nil {
		return runtime.APIFailure(err, "deleting KubeVirt VirtualMachine %s", s.vm.Name)
	}
	return nil
}

// keepClaims has the claims of a machine outlive it: its disks, and those that its spec names. KubeVirt has made it the owner of those that it
// restored in place.
func (r *Runtime) keepClaims(ctx context.Context, s *sight, m runtime.Machine) error {
	names := claimsOf(s.vm)
	for _, d := range m.Disks {
		names = append(names, d.ID)
	}
	for _, name := range names {
		claim := &corev1.PersistentVolumeClaim{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: name}, claim)
		switch {
		case name == "", apierrors.IsNotFound(err):
		case err != nil:
			return runtime.APIFailure(err, "reading PersistentVolumeClaim %s", name)
		default:
			if err := r.disks().TakeBack(ctx, claim); err != nil {
				return err
			}
		}
	}
	return nil
}
