package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Limits for recording requests and facts unabridged. A larger value costs many times its text when it is decoded.
const (
	recordedBytes, recordedValues = 256 << 10, 32_000
	// recordedMember is the largest member of an abridged request that is recorded.
	recordedMember = 16 << 10
)

// Omitted replaces a large value in a record.
type Omitted struct {
	Bytes int `json:"bytes"`
	// Digest is the SHA-256 of the value's text, so that two values can be distinguished. It is empty if the value may contain a
	// Secret.
	Digest string `json:"digest,omitempty"`
}

func omit(text []byte) Omitted {
	o := Omitted{Bytes: len(text)}
	if !bytes.Contains(text, []byte("Secret")) {
		sum := sha256.Sum256(text)
		o.Digest = "sha256:" + hex.EncodeToString(sum[:])
	}
	return o
}

// large reports whether a request exceeds the limits for recording it unabridged.
func large(r *decision.Review) bool {
	return r.Bytes > recordedBytes || r.Document.Values() > recordedValues
}

// requestOf returns the request for the record: a large one with its object's name and its small members only.
func requestOf(r *decision.Review) any {
	if !large(r) {
		return recorded(r.Document)
	}
	kept := map[string]any{}
	for _, name := range []string{
		"uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace", "operation",
		"userInfo", "object", "oldObject", "dryRun", "options",
	} {
		if v := r.Document.Get(name); !v.IsNull() {
			kept[name] = recordedValue(v)
		}
	}
	for _, name := range []string{"object", "oldObject"} {
		if object := r.Document.Get(name); len(object.Raw()) > recordedMember {
			kept[name] = map[string]any{"omitted": kept[name], "metadata": identityFields(object.Get("metadata"))}
		}
	}
	return kept
}

func identityFields(metadata engine.Value) map[string]any {
	all := map[string]any{}
	for _, name := range []string{"name", "generateName", "namespace", "uid"} {
		if v := metadata.Get(name); !v.IsNull() {
			all[name] = recordedValue(v)
		}
	}
	return all
}

func recordedValue(v engine.Value) any {
	if text := v.Raw(); len(text) > recordedMember {
		return omit(text)
	}
	return recorded(v)
}

// factValue returns the value of a fact for the record.
func factValue(v engine.Value) (value any, tooLarge bool) {
	if v.Within(recordedBytes) {
		return recorded(v), false
	}
	return nil, true
}

// memoryOf returns the bytes that a decision holds while it waits to be recorded: the request's text and the policies' messages.
// Facts are mostly shared with caches.
func memoryOf(d *decision.Decision) int64 {
	n := d.Review.Bytes
	for _, v := range d.Verdicts() {
		if v.Decision == nil {
			continue
		}
		for _, denial := range v.Decision.Denials {
			n += len(denial.WithRemedy())
		}
		for _, warning := range v.Decision.Warnings {
			n += len(warning)
		}
	}
	return int64(n)
}

// recorded returns a document for the record: the text that it was made from, unless something in it must not be recorded.
func recorded(v engine.Value) any {
	text := v.Raw()
	switch {
	case text == nil && v.IsList():
		all := []any{}
		for _, element := range v.Elements() {
			all = append(all, recorded(element))
		}
		return all
	case text == nil || slices.ContainsFunc(signs, func(sign string) bool { return bytes.Contains(text, []byte(sign)) }):
		return scrubbed(v)
	}
	return json.RawMessage(text)
}

// signs are texts of which one is in every document that [scrub] changes: a backslash may write any of the others.
var signs = []string{"Secret", corev1.LastAppliedConfigAnnotation, `\`}

// scrubbed returns a document without data that must not be recorded, at any depth: facts may contain Secrets in lists.
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
