package vsphereserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A machine whose mark names a VirtualMachine that does not exist is reported, and one that has its VirtualMachine is not.
func TestOrphans(t *testing.T) {
	f := newFixture(t)
	f.secret(login(password))
	vm := &v1alpha1.VirtualMachine{Spec: v1alpha1.VirtualMachineSpec{Runtime: v1alpha1.VirtualMachineRuntime{Pod: &v1alpha1.PodRuntime{}}}}
	vm.Namespace, vm.Name = "default", "web-1"
	f.Must(f.api.Create(t.Context(), vm))
	t.Cleanup(func() { _ = f.api.Delete(t.Context(), vm) })
	own := Marked{Path: "/dc/vm/a/web-1", Owner: vm.UID, Name: "default/web-1"}
	f.vCenters.marked = []Marked{own}
	f.pass()
	if s := f.lookup().Status; s.OrphanCount != 0 || v1alpha1.ConditionMachinesKnown.In(s.Conditions) != nil {
		t.Errorf("without an orphan: %+v", s)
	}
	f.vCenters.marked = []Marked{
		{Path: "/dc/vm/b", Owner: "gone", Name: "default/gone"}, own, {Path: "/dc/vm/a/copy", Owner: "another", Name: "default/web-1"},
		{Path: "/dc/vm/c", Owner: "x", Name: strings.Repeat("n", 400)},
	}
	f.pass()
	s := f.lookup().Status
	want := []v1alpha1.VSphereOrphan{
		{Path: "/dc/vm/a/copy", UID: "another", VirtualMachine: "default/web-1"}, {Path: "/dc/vm/b", UID: "gone", VirtualMachine: "default/gone"},
		{Path: "/dc/vm/c"},
	}
	if diff := cmp.Diff(want, s.Orphans); diff != "" || s.OrphanCount != 3 {
		t.Errorf("%d orphans (-want +got):\n%s", s.OrphanCount, diff)
	}
	c := v1alpha1.ConditionMachinesKnown.In(s.Conditions)
	if c == nil || c.Status != "False" || c.Reason != "OrphanedMachines" || !strings.Contains(c.Message, "/dc/vm/a/copy") {
		t.Errorf("the condition is %+v", c)
	}
	f.vCenters.marked = nil
	for i := range 3 * maxOrphans {
		f.vCenters.marked = append(f.vCenters.marked, Marked{Path: fmt.Sprintf("/dc/vm/%03d", i), Owner: types.UID(fmt.Sprint(i)), Name: "default/x"})
	}
	f.pass()
	if s := f.lookup().Status; len(s.Orphans) != maxOrphans || s.OrphanCount != 3*maxOrphans {
		t.Errorf("%d of %d orphans are listed", len(s.Orphans), s.OrphanCount)
	}
	f.vCenters.marked = nil
	f.pass()
	if c := v1alpha1.ConditionMachinesKnown.In(f.lookup().Status.Conditions); c == nil || c.Status != "True" {
		t.Errorf("at last the condition is %+v", c)
	}
}
