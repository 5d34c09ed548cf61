package virtualmachine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// A machine that could not be made is not begun again at once: its message has what the runtime says, and it is tried again after a pause.
func TestMakingFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.world.Script(fake.At{Verb: runtime.VerbEnsure, Machine: uid}, fake.FailTask("no room on the datastore"))
	f.settle()
	if got := f.message(); got != "the machine is being created: no room on the datastore" || len(f.world.Instances()) != 0 {
		t.Errorf("it shows %q, and there are %v", got, f.world.Instances())
	}
	f.offset += time.Minute
	f.settle()
	f.is("Stopped True/AsWanted")
}

// How much is done is told in tens.
func TestMakingTakesTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	release := f.world.Hold(uid, runtime.TaskCreate)
	f.settle()
	var told []string
	for _, percent := range []int32{0, 9, 40, 44, 49, 100} {
		f.world.SetProgress(uid, percent)
		f.Must(f.pass())
		told = append(told, f.message())
	}
	want := []string{"the machine is being created", "the machine is being created", "the machine is being created (40% done)", "the machine is being created (40% done)", "the machine is being created (40% done)", "the machine is being created (100% done)"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	release()
	f.settle()
	f.is("Stopped True/AsWanted")
}
