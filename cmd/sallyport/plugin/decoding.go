package plugin

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"sallyport.dev/sallyport/cmd/internal/decoding"
)

// leavingOut removes objects that cannot be decoded from lists, and warns about each once.
type leavingOut struct {
	out io.Writer

	mu   sync.Mutex
	told map[types.UID]bool
}

// wrap returns the config for all clients of a command.
func (l *leavingOut) wrap(config *rest.Config) *rest.Config {
	config.Wrap(decoding.Filter{Scheme: ownKinds, Left: l.left}.Wrap)
	return config
}

func (l *leavingOut) left(e *decoding.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told[e.UID] {
		return
	}
	if l.told == nil {
		l.told = map[types.UID]bool{}
	}
	l.told[e.UID] = true
	fmt.Fprintf(l.out, "Warning: %v; it is left out; %s\n", e, e.WayOut())
}

// decode decodes the object into its type. If that fails, the report has the error, and only what it has for all kinds.
func (l *looking) decode(into runtime.Object) bool {
	err := decoding.Into(ownKinds, l.object.Unstructured, into)
	if e := new(decoding.Error); errors.As(err, &e) {
		err = fmt.Errorf("%w; %s", e, e.WayOut())
	}
	if err != nil {
		l.r.unknown("status", err)
	}
	return err == nil
}
