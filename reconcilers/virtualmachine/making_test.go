package virtualmachine

import (
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/fake"
)

// A machine that could not be made is not begun again at once: its message has what the runtime says, and it is tried again after a pause.
func TestMakingFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	uid := f.machine(v1alpha1.RunPolicyManual)
	f.world.Script(fake.At{Verb: runtime.VerbEnsure, Machine: uid}, fake.FailTask("no room on the datastore"))
	f.settle()
	if got := f.message(); got != "is being made: no room on the datastore" || len(f.world.Instances()) != 0 {
		t.Errorf("it shows %q, and there are %v", got, f.world.Instances())
	}
	f.offset += time.Minute
	f.settle()
	f.is("Stopped True/AsWanted")
}
