package webhooks

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// noting remembers what is asked of a reader.
type noting struct {
	engine.Reader
	decision *Decision
}

func (d *Decision) noting(r engine.Reader) engine.Reader { return noting{r, d} }

// Read answers, and notes the answer.
func (n noting) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	a, err := n.Reader.Read(ctx, q)
	if err == nil {
		if n.decision.asked == nil {
			n.decision.asked = map[string]engine.Fact{}
		}
		n.decision.asked[q.Fact] = engine.Fact{Query: &q, Answer: a}
	}
	return a, err
}

// parentOf reads the metadata of the object that a subresource belongs to.
func parentOf(ctx context.Context, reader engine.Reader) (engine.Value, error) {
	q := engine.Query{Fact: "parent", Parent: true, Live: true}
	is, err := reader.Read(ctx, q)
	if err != nil || is.Value.IsNull() {
		return engine.Value{}, err
	}
	on := referenceTo(is.Value)
	q = metadataOf(q.Fact, &on)
	q.Parent = true
	parent, err := reader.Read(ctx, q)
	return parent.Value, err
}

// metadataOf asks for the metadata of an object.
func metadataOf(fact string, on *corev1.ObjectReference) engine.Query {
	return engine.Query{
		Fact: fact, Metadata: true, Live: true, APIVersion: on.APIVersion, Kind: on.Kind, Namespace: on.Namespace, Name: on.Name,
	}
}

// sameState tells whether two are one object in one version.
func sameState(a, b engine.Value) bool {
	one, other := referenceTo(a), referenceTo(b)
	return one.UID != "" && one.UID == other.UID && one.ResourceVersion == other.ResourceVersion
}

func overrideIn(object engine.Value) string {
	return object.Get("metadata").Get("annotations").Get(v1alpha1.AnnotationOverride).Text()
}

func referenceTo(object engine.Value) corev1.ObjectReference {
	metadata := object.Get("metadata")
	return corev1.ObjectReference{
		APIVersion: object.Get("apiVersion").Text(), Kind: object.Get("kind").Text(),
		Namespace: metadata.Get("namespace").Text(), Name: metadata.Get("name").Text(), UID: types.UID(metadata.Get("uid").Text()),
		// Two overrides of one policy are two events, and not one that happened twice.
		ResourceVersion: metadata.Get("resourceVersion").Text(),
	}
}

// live reads everything past the caches.
type live struct{ engine.Reader }

// Read answers a policy's question.
func (l live) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	q.Live = true
	return l.Reader.Read(ctx, q)
}
