package facts

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/engine"
)

// ErrUnreadable means that Sallyport does not, or may not, read an object.
var ErrUnreadable = errors.New("unreadable")

// Home sets the namespace of Sallyport's installation, whose objects are hidden from policies. Call it before the first request.
func (s *Store) Home(namespace string) { s.ownNamespace = namespace }

// Withheld returns an error for a kind that is never read for a policy, whatever its spec.reads lists.
func Withheld(apiVersion, kind string) error {
	if schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		return fmt.Errorf("%w: core Secrets are never read for a policy", ErrUnreadable)
	}
	return nil
}

// checkWithheld returns an error for a query that is never answered. Lists over all namespaces are answered, without the objects in
// Sallyport's own namespace.
func (s *Store) checkWithheld(q engine.Query) error {
	if s.ownNamespace != "" && q.Namespace == s.ownNamespace {
		return fmt.Errorf("%w: objects in namespace %s, which Sallyport is installed in, are never read for a policy", ErrUnreadable, s.ownNamespace)
	}
	return Withheld(q.APIVersion, q.Kind)
}

// unreadable wraps in ErrUnreadable the errors of metadata that the API server does not give to Sallyport.
func unreadable(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return err
}
