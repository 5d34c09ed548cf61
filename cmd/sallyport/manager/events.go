package manager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// maxNote is how many bytes the API server takes as the note of an event.
const maxNote = 1024

// brief is a manager that cuts the notes of all events to what the API server takes.
type brief struct{ ctrl.Manager }

// GetEventRecorder gives a recorder that cuts what is too long.
func (m brief) GetEventRecorder(name string) recorder.EventRecorder {
	return briefly{m.Manager.GetEventRecorder(name)}
}

type briefly struct{ recorder.EventRecorder }

// Eventf makes an event.
func (b briefly) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	b.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", v1alpha1.Cut(fmt.Sprintf(note, args...), maxNote))
}
