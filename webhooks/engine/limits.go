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
	// longestNumber is the longest literal of a number. Go writes a float64 in 25 bytes at most, and an int64 in 20.
	longestNumber = 32
	// maxNesting is how many objects and lists may be around a value. A CustomResourceDefinition, the deepest of what Kubernetes has,
	// takes three for each level of the schema that it describes.
	maxNesting = 200
	// maxValues is how many strings, numbers, truths, nulls, objects, lists and names of members there may be: in terms each takes
	// about a hundred bytes, whatever its text. TestLimitsLetRealObjectsPass has the largest objects that a cluster can hold.
	maxValues = 400_000
)

// checkNumber refuses what no float64 or int64 is written as. Arithmetic and comparison are exact in Rego: with 1e1000000 they
// take minutes.
func checkNumber(literal []byte) error {
	if len(literal) > longestNumber {
		return fmt.Errorf("%.16s... is a number of %d characters, more than %d", literal, len(literal), longestNumber)
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
