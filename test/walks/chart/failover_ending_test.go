package chart

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// ending is how a round ended, without what differs from one to the next: times, UIDs, versions.
type ending struct {
	Machine struct {
		Phase      v1alpha1.VirtualMachinePhase
		Free       bool
		Intent     string
		Power      v1alpha1.PowerState // in the world
		Conditions []string
	}
	Start, Stop operationEnding
}

type operationEnding struct {
	Phase        v1alpha1.OperationPhase
	SupersededBy string
	Supersedes   []string
	Baseline     v1alpha1.PowerState
	Step         string
	Finalizers   []string
	Conditions   []string
}

func endingOf(s *state, machine types.UID) (e ending) {
	e.Machine.Phase, e.Machine.Free = s.vm.Status.Phase, !s.vm.Busy()
	if intent := s.vm.Status.PowerIntent; intent != nil {
		e.Machine.Intent = fmt.Sprintf("%s by %s", intent.State, intent.By)
	}
	if in, exists := stack.world.Instance(machine); exists {
		e.Machine.Power = in.Power
	}
	e.Machine.Conditions = conditionsOf(s.vm.Status.Conditions)
	e.Start, e.Stop = operationEndingOf(&s.start), operationEndingOf(&s.stop)
	return e
}

func operationEndingOf(o *v1alpha1.VirtualMachineOperation) operationEnding {
	e := operationEnding{
		Phase: o.Status.Phase, Step: string(o.Status.Step), Finalizers: o.Finalizers, Conditions: conditionsOf(o.Status.Conditions),
	}
	if o.Status.SupersededBy != nil {
		e.SupersededBy = o.Status.SupersededBy.Name
	}
	for _, by := range o.Status.Supersedes {
		e.Supersedes = append(e.Supersedes, by.Name)
	}
	if o.Status.Baseline != nil {
		e.Baseline = o.Status.Baseline.PowerState
	}
	return e
}

func conditionsOf(conditions []metav1.Condition) (all []string) {
	for _, c := range conditions {
		all = append(all, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	slices.Sort(all)
	return all
}

func (e ending) String() string {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (e ending) same(other ending) bool { return e.String() == other.String() }
