package manager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// maxNote is the maximum length of the note of an event in bytes.
const maxNote = 1024

// brief is a manager that truncates the notes of events to maxNote.
type brief struct{ ctrl.Manager }

func (m brief) GetEventRecorder(name string) recorder.EventRecorder {
	return briefly{m.Manager.GetEventRecorder(name)}
}

type briefly struct{ recorder.EventRecorder }

func (b briefly) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	b.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", v1alpha1.Cut(fmt.Sprintf(note, args...), maxNote))
}
