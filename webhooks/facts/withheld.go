package facts

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/engine"
)

// ErrUnreadable means that Sallyport does not read something, or may not.
var ErrUnreadable = errors.New("unreadable")

// Home names the namespace that Sallyport is installed in, of which no policy is told anything. It is for before the first request.
func (s *Store) Home(namespace string) { s.home = namespace }

// Withheld gives an error for a kind that is never read for a policy, whatever its spec.reads lists.
func Withheld(apiVersion, kind string) error {
	if schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		return fmt.Errorf("%w: core Secrets are never read for a policy", ErrUnreadable)
	}
	return nil
}

// withheld gives an error for a question that is not answered to any policy. Lists over all namespaces are, without what is in
// Sallyport's own.
func (s *Store) withheld(q engine.Query) error {
	if s.home != "" && q.Namespace == s.home {
		return fmt.Errorf("%w: objects in namespace %s, which Sallyport is installed in, are never read for a policy", ErrUnreadable, s.home)
	}
	return Withheld(q.APIVersion, q.Kind)
}

// unreadable tells ErrUnreadable of metadata that the API server does not give to Sallyport.
func unreadable(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return err
}
