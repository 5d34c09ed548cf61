package webhooks

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"

	"sallyport.dev/sallyport/webhooks/engine"
)

// What records keep as it is: requests, and facts, of so many bytes and values: the larger ones cost many times their text.
const (
	recordedBytes, recordedValues = 256 << 10, 32_000
	// recordedMember is how many bytes a member of a large request may have that is kept all the same: who asked for what.
	recordedMember = 16 << 10
)

// Omitted is in a record in the place of something large.
type Omitted struct {
	Bytes int `json:"bytes"`
	// Digest is the SHA-256 of its text, so that two can be told apart. Of what may hold a Secret there is none.
	Digest string `json:"digest,omitempty"`
}

func omit(text []byte) Omitted {
	o := Omitted{Bytes: len(text)}
	if !mayHoldSecret(text) {
		sum := sha256.Sum256(text)
		o.Digest = "sha256:" + hex.EncodeToString(sum[:])
	}
	return o
}

// large tells whether a request is more than is recorded.
func (r *Review) large() bool { return r.bytes > recordedBytes || r.Document.Values() > recordedValues }

// onRecord is the request as it is recorded: of a large one the names of its object, and the members that are not large.
func (r *Review) onRecord() any {
	if !r.large() {
		return scrubbed(r.Document)
	}
	kept := map[string]any{}
	for _, name := range []string{
		"uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace", "operation",
		"userInfo", "object", "oldObject", "dryRun", "options",
	} {
		if v := r.Document.Get(name); !v.IsNull() {
			kept[name] = keep(v)
		}
	}
	for _, name := range []string{"object", "oldObject"} {
		if object := r.Document.Get(name); len(object.Raw()) > recordedMember {
			kept[name] = map[string]any{"omitted": kept[name], "metadata": names(object.Get("metadata"))}
		}
	}
	return kept
}

func names(metadata engine.Value) map[string]any {
	all := map[string]any{}
	for _, name := range []string{"name", "generateName", "namespace", "uid"} {
		if v := metadata.Get(name); !v.IsNull() {
			all[name] = keep(v)
		}
	}
	return all
}

func keep(v engine.Value) any {
	if text := v.Raw(); len(text) > recordedMember {
		return omit(text)
	}
	return scrubbed(v)
}

// factOnRecord is the value of a fact as it is recorded.
func factOnRecord(v engine.Value) (value any, tooLarge bool) {
	if v.Within(recordedBytes) {
		return scrubbed(v), false
	}
	return nil, true
}

// bytes is what a decision holds while it waits to be recorded: the text of the request, and what policies say of it. Facts are mostly
// of caches.
func (d *Decision) bytes() int64 {
	n := d.Review.bytes
	for i := range d.verdicts {
		if said := d.verdicts[i].decision; said != nil {
			for _, denial := range said.Denials {
				n += len(denial.Message)
			}
			for _, warning := range said.Warnings {
				n += len(warning)
			}
		}
	}
	return int64(n)
}

// scrubbed is a document without what must not be kept, at any depth: facts may hold Secrets in lists.
func scrubbed(v engine.Value) any {
	decoded, err := v.Decode()
	if err != nil {
		return nil
	}
	scrub(decoded)
	return decoded
}

func scrub(node any) {
	switch node := node.(type) {
	case map[string]any:
		if node["kind"] == "Secret" && node["apiVersion"] == "v1" {
			delete(node, "data")
			delete(node, "stringData")
		}
		if annotations, ok := node["annotations"].(map[string]any); ok {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
		}
		for _, child := range node {
			scrub(child)
		}
	case []any:
		for _, child := range node {
			scrub(child)
		}
	}
}
