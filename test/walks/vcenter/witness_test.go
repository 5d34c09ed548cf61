//go:build !race

package vcenter

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// witness sees every state that people could have read of the objects of ours and of the events about them.
type witness struct {
	watches []watch.Interface
	all     sync.WaitGroup

	mu   sync.Mutex
	seen []sighting
}

// sighting is a change that the API server has told.
type sighting struct {
	watch.EventType
	client.Object
}

// String says what was seen of which object.
func (s sighting) String() string {
	text, _ := json.Marshal(s.Object)
	return fmt.Sprintf("%s %T: %s", s.EventType, s.Object, text)
}

// watchAll has a witness watch what there is of ours and the events, until its end.
func watchAll(ctx context.Context, c client.WithWatch) (*witness, error) {
	w := &witness{}
	for _, list := range []client.ObjectList{
		&v1alpha1.VSphereServerList{}, &v1alpha1.VirtualMachineList{}, &v1alpha1.VirtualMachineOperationList{}, &eventsv1.EventList{},
	} {
		changes, err := c.Watch(ctx, list)
		if err != nil {
			return nil, err
		}
		w.watches = append(w.watches, changes)
		w.all.Go(func() { w.note(changes.ResultChan()) })
	}
	return w, nil
}

func (w *witness) note(changes <-chan watch.Event) {
	for change := range changes {
		object, ok := change.Object.(client.Object)
		if !ok {
			continue
		}
		object.SetManagedFields(nil)
		w.mu.Lock()
		w.seen = append(w.seen, sighting{change.Type, object})
		w.mu.Unlock()
	}
}

// end ends the watches.
func (w *witness) end() {
	for _, changes := range w.watches {
		changes.Stop()
	}
	w.all.Wait()
}

// mark is a moment for since.
func (w *witness) mark() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

// since gives what was seen after a moment.
func (w *witness) since(mark int) []sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen[mark:])
}

// told gives the notes of the events about an object, oldest first, as type, reason and note.
func (w *witness) told(object client.Object) (notes []string) {
	for _, s := range w.since(0) {
		e, ok := s.Object.(*eventsv1.Event)
		if ok && s.EventType == watch.Added && e.Regarding.UID == object.GetUID() {
			notes = append(notes, strings.Join([]string{e.Type, e.Reason, e.Note}, " "))
		}
	}
	return notes
}
