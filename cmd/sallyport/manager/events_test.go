package manager

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// annotated adds to a recorder the method that these tests do not call.
type annotated struct{ events.EventRecorder }

func (annotated) AnnotatedEventf(runtime.Object, runtime.Object, map[string]string, string, string, string, string, ...any) {
}

// What is cut is cut between characters, and what fits is left as it is.
func TestNotesAreBrief(t *testing.T) {
	fake := events.NewFakeRecorder(2)
	recorder := briefly{annotated{fake}}
	recorder.Eventf(nil, nil, "Normal", "Long", "Test", "%s", "x"+strings.Repeat("\u00e4", maxNote))
	recorder.Eventf(nil, nil, "Normal", "Short", "Test", "%d %%", 100)
	long := strings.TrimPrefix(<-fake.Events, "Normal Long ")
	if len(long) != maxNote-1 || !utf8.ValidString(long) {
		t.Errorf("%d bytes are left: %q", len(long), long)
	}
	if short := <-fake.Events; short != "Normal Short 100 %" {
		t.Errorf("got %q", short)
	}
}
