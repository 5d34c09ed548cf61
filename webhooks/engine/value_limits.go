package engine

import (
	"bytes"
	"fmt"
	"strconv"
)

// What a document may have in it beside bytes. An API server decodes what it is sent before it asks a webhook, so that no review
// from one is beyond these limits, with one exception: it hands on JSON that a kind holds for others, as ControllerRevisions do in
// data, as the client wrote it. Such a review is refused like any that cannot be read, and failurePolicy says what becomes of the
// request.
const (
	// longestLiteral is the longest literal of a number. Go writes a float64 in 25 bytes at most, and an int64 in 20.
	longestLiteral = 32
	// maxNesting is how many objects and lists may be around a value. A CustomResourceDefinition, the deepest of what Kubernetes has,
	// takes three for each level of the schema that it describes.
	maxNesting = 200
	// maxValues is how many strings, numbers, truths, nulls, objects, lists and names of members there may be: in an UPDATE of the
	// largest and densest object that a cluster can hold, seven bytes for each. See TestLimitsLetRealObjectsPass.
	maxValues = 450_000
	// maxRead is how many of them policies may read, in a large document: in terms each takes more than a hundred bytes, whatever its
	// text, and may be copied. No policy reads all of such an object but one that walks through it.
	maxRead = 150_000
	// largeText is how many bytes a document has of which the terms are counted, and kept for the next policy that reads them.
	largeText = 16 << 10
)

// checkNumber refuses what no float64 or int64 is written as. Arithmetic and comparison are exact in Rego: with 1e1000000 they
// take minutes.
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
