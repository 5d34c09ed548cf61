package plugin

import (
	"fmt"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"sallyport.dev/sallyport/cmd/internal/decoding"
)

// leavingOut leaves objects that cannot be decoded out of lists, and warns of each once.
type leavingOut struct {
	out io.Writer

	mu   sync.Mutex
	told map[types.UID]bool
}

// wrap is for all clients of a command.
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
