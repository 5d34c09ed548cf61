package fake

import (
	"testing"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Only a machine that is off can be deleted.
func TestDeleteNeedsTheMachineOff(t *testing.T) {
	if _, on := running(t); !runtime.IsInvalidState(on.Delete(t.Context(), vm)) {
		t.Error("a machine that is on could be deleted")
	}
	w, off := world(t)
	must(t, off.Delete(t.Context(), vm))
	w.AdvanceAll()
	if seen, err := off.Observe(t.Context(), vm); err != nil || seen.Exists {
		t.Errorf("got %+v, %v", seen, err)
	}
}
