package engine

import (
	"bytes"
	"fmt"
	"strconv"
)

// Limits of a document besides its bytes. An API server decodes requests before it calls a webhook, so that no review from one
// exceeds these limits, with one exception: it passes on the JSON that a kind embeds, as ControllerRevisions do in data, as the
// client wrote it. Such a review is rejected as unreadable, and failurePolicy decides about the request.
const (
	// longestLiteral limits the literal of a number. Go writes a float64 in 25 bytes at most, and an int64 in 20.
	longestLiteral = 32
	// maxNesting limits the depth of objects and lists. A CustomResourceDefinition, the deepest Kubernetes object, has three levels
	// for each level of the schema that it describes.
	maxNesting = 200
	// maxValues limits the strings, numbers, booleans, nulls, objects, lists and names of members: in an UPDATE of the largest and
	// densest object that a cluster can hold, seven bytes for each. See TestLimitsLetRealObjectsPass.
	maxValues = 450_000
	// maxRead limits how many of them policies may read of a large document: each takes more than a hundred bytes as a term,
	// whatever its text, and may be copied. Only a policy that walks through such an object reads all of it.
	maxRead = 150_000
	// largeText is the size from which the terms of a document are counted, and cached for other policies.
	largeText = 16 << 10
)

// checkNumber rejects literals that no float64 or int64 is written as. Arithmetic and comparison are exact in Rego: with 1e1000000
// they take minutes.
func checkNumber(literal []byte) error {
	if len(literal) > longestLiteral {
		return fmt.Errorf("%.16s... is a number of %d characters, more than %d", literal, len(literal), longestLiteral)
	}
	mantissa, _, scaled := bytes.Cut(bytes.ToLower(literal), []byte("e"))
	if !scaled {
		return nil
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || f == 0 && bytes.ContainsAny(mantissa, "123456789") {
		return fmt.Errorf("%s is a number beyond float64", literal)
	}
	return nil
}
