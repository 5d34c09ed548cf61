package decision

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// recordingReader is a Reader that adds all answers to the decision.
type recordingReader struct {
	engine.Reader
	evaluation evaluation
}

func (d evaluation) recording(r engine.Reader) engine.Reader { return recordingReader{r, d} }

// Read implements engine.Reader.
func (n recordingReader) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	a, err := n.Reader.Read(ctx, q)
	if err == nil {
		if n.evaluation.queried == nil {
			n.evaluation.queried = map[string]engine.Fact{}
		}
		n.evaluation.queried[q.Fact] = engine.Fact{Query: &q, Answer: a}
	}
	return a, err
}

// ParentOf returns the metadata of the parent of a subresource.
func ParentOf(ctx context.Context, reader engine.Reader) (engine.Value, error) {
	q := engine.Query{Fact: "parent", Parent: true, Live: true}
	is, err := reader.Read(ctx, q)
	if err != nil || is.Value.IsNull() {
		return engine.Value{}, err
	}
	on := ReferenceTo(is.Value)
	q = MetadataQuery(q.Fact, &on)
	q.Parent = true
	parent, err := reader.Read(ctx, q)
	return parent.Value, err
}

// MetadataQuery returns a query for the metadata of an object.
func MetadataQuery(fact string, on *corev1.ObjectReference) engine.Query {
	return engine.Query{
		Fact: fact, Metadata: true, Live: true, APIVersion: on.APIVersion, Kind: on.Kind, Namespace: on.Namespace, Name: on.Name,
	}
}

// sameState reports whether a and b are the same version of the same object.
func sameState(a, b engine.Value) bool {
	one, other := ReferenceTo(a), ReferenceTo(b)
	return one.UID != "" && one.UID == other.UID && one.ResourceVersion == other.ResourceVersion
}

// OverrideIn returns the text of the override annotation.
func OverrideIn(object engine.Value) string {
	return object.Get("metadata").Get("annotations").Get(v1alpha1.AnnotationOverride).Text()
}

// ReferenceTo returns the identity and version of an object.
func ReferenceTo(object engine.Value) corev1.ObjectReference {
	metadata := object.Get("metadata")
	return corev1.ObjectReference{
		APIVersion: object.Get("apiVersion").Text(), Kind: object.Get("kind").Text(),
		Namespace: metadata.Get("namespace").Text(), Name: metadata.Get("name").Text(), UID: types.UID(metadata.Get("uid").Text()),
		// Two overrides of one policy are two events, not a repetition of one.
		ResourceVersion: metadata.Get("resourceVersion").Text(),
	}
}

// live is a Reader that bypasses the caches.
type live struct{ engine.Reader }

// Read implements engine.Reader.
func (l live) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	q.Live = true
	return l.Reader.Read(ctx, q)
}
