package manager

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
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
	note = fmt.Sprintf(note, args...)
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote], "")
	}
	b.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", note)
}
