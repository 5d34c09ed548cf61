//go:build !race

package pods

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/nodeagent"
	"sallyport.dev/sallyport/test/support/step"
)

// traveller is a machine that is moved, and what it was when that was looked at last.
type traveller struct {
	*site
	vm   *v1alpha1.VirtualMachine
	work int
	pod  *corev1.Pod
}

// newTraveller gives a machine that runs on the first node of a site of its own, and has done some work.
func newTraveller(t *testing.T, name string) *traveller {
	t.Helper()
	s := newSite(t, name)
	t.Cleanup(func() {
		for _, wrong := range s.nodes.Violations() {
			t.Error(wrong)
		}
	})
	return s.traveller("vm")
}

// traveller gives one more such machine.
func (s *site) traveller(name string) *traveller {
	s.Helper()
	v := &traveller{site: s}
	v.vm = &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VirtualMachineSpec{
		NodeName: v.node(1), Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}},
	}}
	v.create(v.vm)
	v.shows(v.vm, v1alpha1.VirtualMachineRunning)
	v.remember()
	return v
}

func (v *traveller) node(n int) string { return fmt.Sprintf("%s-%d", v.name, n) }

// remember has the machine do some work, and remembers it.
func (v *traveller) remember() {
	v.Helper()
	v.work, v.pod = v.nodes.Work(v.vm.UID), v.site.pod(v.vm)
}

func (v *traveller) look() *v1alpha1.VirtualMachineStatus {
	v.Helper()
	v.Must(stack.Client.Get(v.Context(), client.ObjectKeyFromObject(v.vm), v.vm))
	return &v.vm.Status
}

// wanted changes spec.nodeName.
func (v *traveller) wanted(node string) {
	v.Helper()
	v.Until("spec.nodeName is changed", func() (string, bool) {
		v.look()
		v.vm.Spec.NodeName = node
		err := stack.Client.Update(v.Context(), v.vm)
		return fmt.Sprint(err), err == nil
	})
}

// override has requests of the test pass the policy once.
func (v *traveller) override(policy string) {
	v.Helper()
	var me authenticationv1.SelfSubjectReview
	v.Must(stack.Client.Create(v.Context(), &me))
	o := v1alpha1.Override{Policy: policy, UID: v.vm.UID, By: me.Status.UserInfo.Username, Until: time.Now().Add(20 * time.Minute), Reason: "a trial"}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationOverride, o.String())
	v.Must(stack.Client.Patch(v.Context(), v.vm, client.RawPatch("application/merge-patch+json", patch)))
}

// waits waits until the move is in that step, for that reason, and gives the message.
func (v *traveller) waits(on v1alpha1.MigrationStep, reason v1alpha1.ConditionReason) (message string) {
	v.Helper()
	v.Until(fmt.Sprintf("the move is in step %s (%s)", on, reason), func() (string, bool) {
		status := v.look()
		settled := meta.FindStatusCondition(status.Conditions, string(v1alpha1.ConditionPlacementSettled))
		if status.Migration == nil || settled == nil {
			return fmt.Sprintf("%+v", status), false
		}
		message = settled.Message
		return fmt.Sprintf("%+v", status), status.Migration.Step == on && settled.Reason == string(reason)
	})
	return message
}

// arrives waits until the move is over and the machine on that node, as it was, and with nothing of it left in the registry.
func (v *traveller) arrives(node string) {
	v.Helper()
	v.Until("the machine is on node "+node, func() (string, bool) {
		status := v.look()
		return fmt.Sprintf("%+v", status), status.Migration == nil && status.ActiveOperation == nil && status.NodeName == node &&
			status.Phase == v1alpha1.VirtualMachineRunning && meta.IsStatusConditionTrue(status.Conditions, string(v1alpha1.ConditionReady))
	})
	now := v.site.pod(v.vm)
	if v.vm.Status.InstanceID != now.Name || now.Spec.NodeName != node {
		v.Errorf("the machine shows instance %s and is Pod %s on %s", v.vm.Status.InstanceID, now.Name, now.Spec.NodeName)
	}
	if did := v.nodes.Work(v.vm.UID); did != v.work+1 {
		v.Errorf("the machine had done %d and has now done %d, one more than it remembers", v.work, did)
	}
	if tags := snapshotsOf(v.T, v.vm); len(tags) > 0 {
		v.Errorf("the registry still has %v", tags)
	}
	v.remember()
}

// moved is arrives for a machine that is another instance then.
func (v *traveller) moved(node string) {
	v.Helper()
	was := v.pod
	v.arrives(node)
	if before, after := was.Annotations[agent.AnnotationInstanceID], v.pod.Annotations[agent.AnnotationInstanceID]; v.pod.UID == was.UID || v.pod.Name == was.Name || before == after {
		v.Errorf("the machine was instance %s of Pod %s, and is instance %s of Pod %s", before, was.Name, after, v.pod.Name)
	}
}

// snapshotsOf are the tags that the registry has of a machine.
func snapshotsOf(t step.T, vm *v1alpha1.VirtualMachine) []string {
	t.Helper()
	repository, err := name.NewRepository(fmt.Sprintf("%s/%s/%s", registry.Repository(), vm.Namespace, vm.UID))
	t.Must(err)
	tags, err := remote.List(repository, remote.WithTransport(registry.Transport()), remote.WithContext(t.Context()))
	if answer, is := errors.AsType[*transport.Error](err); is && answer.StatusCode == http.StatusNotFound {
		return nil
	}
	t.Must(err)
	return tags
}

// A machine that is a Pod is moved with all that it is, by its spec and by operations.
func TestMove(t *testing.T) {
	v := newTraveller(t, "move")
	v.Step("another node in the spec", func(step.T) {
		release := v.nodes.Hold(v.vm.UID, nodeagent.Reporting)
		v.wanted(v.node(2))
		v.waits(v1alpha1.MigrationHibernate, v1alpha1.ReasonMigrating)
		if v.vm.Status.Phase != v1alpha1.VirtualMachineMigrating {
			t.Errorf("the machine is %s", v.vm.Status.Phase)
		}
		release()
		v.moved(v.node(2))
	})
	v.Step("a Migrate operation", func(step.T) {
		o := v.operate(v.vm, "back", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationMigrate, Migrate: &v1alpha1.MigrateTarget{NodeName: v.node(1)}})
		v.ends(o, false)
		v.moved(v.node(1))
	})
	v.Step("an Evict operation, of a Pod that somebody has protected", func(step.T) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelDeletionProtection, v1alpha1.DeletionProtectionEnabled)
		v.Must(stack.Client.Patch(v.Context(), v.pod, client.RawPatch("application/merge-patch+json", patch)))
		v.ends(v.operate(v.vm, "away", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationEvict}), false)
		v.moved(v.node(2))
	})
	v.Step("events", func(s step.T) {
		var told corev1.EventList
		s.Must(stack.Client.List(s.Context(), &told, client.InNamespace(v.name)))
		for _, want := range []string{"hibernating the machine on node move-1", "the registry has the snapshot (sha256:",
			"restoring the machine from its snapshot", "the machine is live; removing its snapshot"} {
			if !slices.ContainsFunc(told.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, want) }) {
				t.Errorf("no event says that a machine %s", want)
			}
		}
	})
}

// The limit for a node counts moves by operations and by spec.nodeName together. An override has a further change admitted, but the machine
// still waits until there is room.
func TestMovesHaveTheirTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	first := newTraveller(t, "turns")
	second, third := first.traveller("second"), first.traveller("third")
	release := []func(){first.nodes.Hold(first.vm.UID, nodeagent.Reporting), first.nodes.Hold(second.vm.UID, nodeagent.Reporting)}
	first.wanted(first.node(2))
	first.waits(v1alpha1.MigrationHibernate, v1alpha1.ReasonMigrating)
	o := second.operate(second.vm, "away", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationMigrate, Migrate: &v1alpha1.MigrateTarget{NodeName: second.node(2)}})
	second.waits(v1alpha1.MigrationHibernate, v1alpha1.ReasonMigrating)
	if claim := second.vm.Status.ActiveOperation; claim == nil || claim.NodeName != second.node(2) {
		t.Errorf("the claim of the operation is %+v", claim)
	}
	third.Step("a third one is refused", func(s step.T) {
		patch := fmt.Appendf(nil, `{"spec":{"nodeName":%q}}`, third.node(2))
		err := stack.Client.Patch(s.Context(), third.vm, client.RawPatch("application/merge-patch+json", patch))
		if err == nil || !strings.Contains(err.Error(), "[placement-migration/TooManyMigrations]") {
			t.Errorf("the change was answered with %v", err)
		}
	})
	third.Step("and waits if that is overridden", func(step.T) {
		third.override("placement-migration")
		third.wanted(third.node(2))
		third.Until("the machine waits for its turn", func() (string, bool) {
			settled := meta.FindStatusCondition(third.look().Conditions, string(v1alpha1.ConditionPlacementSettled))
			return fmt.Sprintf("%+v", settled), settled != nil && settled.Reason == "TooManyMigrations"
		})
		if status := third.vm.Status; status.ActiveOperation != nil || status.NodeName != third.node(1) {
			t.Errorf("the machine is on %s, held by %+v", status.NodeName, status.ActiveOperation)
		}
	})
	for _, goOn := range release {
		goOn()
	}
	first.moved(first.node(2))
	second.ends(o, false)
	second.moved(second.node(2))
	third.moved(third.node(2))
}

// What was begun is taken back, or brought to its end, whatever is wanted meanwhile.
func TestMovesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	v := newTraveller(t, "back")
	v.Step("before it has left", func(step.T) {
		release := v.nodes.Hold(v.vm.UID, nodeagent.Reporting)
		v.wanted(v.node(2))
		v.waits(v1alpha1.MigrationHibernate, v1alpha1.ReasonMigrating)
		v.wanted(v.node(1))
		release()
		v.arrives(v.node(1))
	})
	v.Step("a stop meanwhile", func(step.T) {
		release := v.nodes.Hold(v.vm.UID, nodeagent.Reporting)
		o := v.operate(v.vm, "away", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationEvict})
		v.waits(v1alpha1.MigrationHibernate, v1alpha1.ReasonMigrating)
		stop := v.operate(v.vm, "stop", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStop})
		release()
		v.ends(o, true)
		v.ends(stop, false)
		v.ends(v.operate(v.vm, "start", v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStart}), false)
		v.remember()
		v.arrives(v.node(1))
	})
	v.Step("after it has left, because nobody takes it", func(step.T) {
		release := v.nodes.Hold(v.vm.UID, nodeagent.Reporting)
		v.wanted(v.node(2))
		v.waits(v1alpha1.MigrationHibernate, v1alpha1.ReasonMigrating)
		cordon(v.T, v.node(2), true)
		release()
		v.waits(v1alpha1.MigrationRestore, v1alpha1.ReasonUnscheduled)
		o := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{Name: "meanwhile", Namespace: v.name}, Spec: v1alpha1.VirtualMachineOperationSpec{
			Type: v1alpha1.OperationStop, Force: true, VirtualMachineName: v.vm.Name,
		}}
		if err := stack.Client.Create(t.Context(), o); err == nil || !strings.Contains(err.Error(), "operations-supersede") {
			t.Errorf("a machine that is on no node is stopped: %v", err)
		}
		v.wanted("")
		v.moved(v.node(1))
		cordon(v.T, v.node(2), false)
	})
}

func cordon(t step.T, node string, unschedulable bool) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable)
	t.Must(stack.Client.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", patch)))
}

// A node that is dead is waited for, until a person confirms it. The machine is made from its snapshot then, once.
func TestSourceIsDead(t *testing.T) {
	v := newTraveller(t, "dead")
	release := v.nodes.Hold(v.vm.UID, nodeagent.Deleting)
	v.wanted(v.node(2))
	v.waits(v1alpha1.MigrationRelease, v1alpha1.ReasonMigrating)
	v.nodes.Die(v.node(1))
	message := v.waits(v1alpha1.MigrationRelease, v1alpha1.ReasonSourceUnreachable)
	fence := fmt.Sprintf("%s=%s", v1alpha1.AnnotationSourceFenced, v.pod.UID)
	if !strings.HasSuffix(message, fence) {
		t.Errorf("the way out is not in %q", message)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationSourceFenced, v.pod.UID)
	v.Must(stack.Client.Patch(t.Context(), v.vm, client.RawPatch("application/merge-patch+json", patch)))
	v.moved(v.node(2))
	release()
	v.nodes.Revive(v.node(1))
}

// A machine that is on no node is deleted with its snapshot.
func TestDeletedOnItsWay(t *testing.T) {
	v := newTraveller(t, "deleted")
	release := v.nodes.Hold(v.vm.UID, nodeagent.Reporting)
	v.wanted(v.node(2))
	v.waits(v1alpha1.MigrationHibernate, v1alpha1.ReasonMigrating)
	cordon(v.T, v.node(2), true)
	release()
	v.waits(v1alpha1.MigrationRestore, v1alpha1.ReasonUnscheduled)
	if tags := snapshotsOf(v.T, v.vm); len(tags) != 1 {
		t.Errorf("the registry has %v", tags)
	}
	gone := v.vm.DeepCopy()
	v.Must(stack.Client.Delete(t.Context(), v.vm))
	v.gone(v.vm)
	if tags := snapshotsOf(v.T, gone); len(tags) > 0 {
		t.Errorf("the registry still has %v", tags)
	}
}
