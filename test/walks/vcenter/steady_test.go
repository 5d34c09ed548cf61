//go:build !race

package vcenter

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What is at rest is looked at, and nothing is written. That is so too for a manager that has just begun.
func TestRest(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	s := newSite(t)
	s.ready()
	policies := []v1alpha1.RunPolicy{v1alpha1.RunPolicyManual, v1alpha1.RunPolicyAlwaysOn, v1alpha1.RunPolicyAlwaysOff}
	for i := range 12 {
		name := fmt.Sprintf("web-%d", i)
		s.machine(name)
		vm := s.vm(name)
		vm.Spec.RunPolicy = policies[i%len(policies)]
		s.adopt(vm)
	}
	for _, vm := range s.machines() {
		s.shows(&vm, asWanted)
	}
	s.until("the run policies have their way", func() string { return fmt.Sprint(s.powers(v1alpha1.PowerRunning)) }, "4")
	for _, vm := range s.machines() {
		s.shows(&vm, asWanted)
	}

	stack.Options.Flags = append(stack.Options.Flags, "--resync-interval", "1s") // by itself it would not look again for hours
	again := func() {
		s.Must(stack.Sallyport.Stop())
		s.Must(stack.Sallyport.Resume(t.Context(), stack.Options))
	}
	again()
	s.until("nothing more is told", func() string { return s.told(func() { s.looksOn(s.looked() + 6) }) }, "")
	told := s.told(func() {
		again()
		s.looks(0, 1)
		s.until("the vCenters are looked at", func() string {
			return fmt.Sprint(s.metric("controller_runtime_reconcile_total", `controller="vsphereserver"`) >= 2)
		}, "true")
	})
	if told != "" {
		t.Errorf("after another manager has begun the API server has told:\n%s", told)
	}
	if told := s.told(func() { s.looks(s.looked(), 2) }); told != "" {
		t.Errorf("of machines at rest the API server has told:\n%s", told)
	}
	s.sessions(1, 3)
}

// machines gives all VirtualMachines that there are.
func (s *site) machines() []v1alpha1.VirtualMachine {
	s.Helper()
	list := &v1alpha1.VirtualMachineList{}
	s.Must(stack.Client.List(s.Context(), list))
	return list.Items
}

// looked is how often this manager has looked at machines.
func (s *site) looked() int {
	s.Helper()
	return s.metric("sallyport_runtime_calls_total", `runtime="vsphere",verb="Observe"`)
}

// looks waits until the manager has looked at every machine that often once it had looked at machines so often. It looks at
// each about as often as at any other, but for a random fifth.
func (s *site) looks(looked, times int) {
	s.Helper()
	s.looksOn(looked + (2*times+1)*len(s.machines()))
}

// looksOn waits until the manager has looked at machines that often.
func (s *site) looksOn(enough int) {
	s.Helper()
	s.until("machines were looked at again", func() string { return fmt.Sprint(s.looked() >= enough) }, "true")
}

// metric gives the sum of the manager's counters of that name that have these labels.
func (s *site) metric(name, labels string) (sum int) {
	s.Helper()
	text, err := stack.Sallyport.Metrics(s.Context())
	s.Must(err)
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(line, name); is && strings.ContainsAny(rest[:1], "{ ") && strings.Contains(line, labels) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			s.Must(err)
			sum += int(value)
		}
	}
	return sum
}

// told gives what the API server has told of our objects during something, and of events about them.
func (s *site) told(during func()) string {
	mark := stack.witness.mark()
	during()
	var told strings.Builder
	for _, change := range stack.witness.since(mark) {
		e, ok := change.Object.(*eventsv1.Event)
		if !ok || strings.HasPrefix(e.Regarding.APIVersion, v1alpha1.GroupName) {
			fmt.Fprintln(&told, change)
		}
	}
	return told.String()
}
