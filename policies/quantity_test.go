package policies

import (
	"math/big"
	"os"
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

// Quantities of the library are those of Kubernetes: what it takes, of the size that the library says, and how much that is.
func TestQuantitiesAreThoseOfKubernetes(t *testing.T) {
	source, err := os.ReadFile("lib/quantity/quantity.rego")
	if err != nil {
		t.Fatal(err)
	}
	query, err := rego.New(
		rego.Module("quantity.rego", string(source)),
		rego.Query(`nanos = [$"{n}" | n := data.sallyport.lib.quantity.nanos(input)]`),
	).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sign, suffix := []string{"", "", "+", "-"}, []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "K", "ki", "g", "e3", "E3", "e+2", "e-3", "e12", "e", "mi", " "}
	rapid.Check(t, func(t *rapid.T) {
		// An amount, because Kubernetes' parser takes a suffix alone for zero, and the schema of its objects does not.
		amount := rapid.StringMatching(`[0-9]{1,6}(\.[0-9]{0,3})?|\.[0-9]{1,6}`).Draw(t, "amount")
		text := rapid.SampledFrom(sign).Draw(t, "sign") + amount + rapid.SampledFrom(suffix).Draw(t, "suffix")
		result, err := query.Eval(t.Context(), rego.EvalInput(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		nanos := result[0].Bindings["nanos"].([]any)
		want, wrong := resource.ParseQuantity(text)
		if (wrong == nil) != (len(nanos) == 1) {
			t.Fatalf("%q: Kubernetes says %v, the library %v", text, wrong, nanos)
		}
		if wrong != nil {
			return
		}
		got, ok := new(big.Rat).SetString(nanos[0].(string))
		if !ok {
			t.Fatalf("%q: %v", text, nanos)
		}
		exact, ok := new(big.Rat).SetString(want.AsDec().String())
		if !ok {
			t.Fatalf("%q: %v", text, want.AsDec())
		}
		if exact.Mul(exact, big.NewRat(1e9, 1)); exact.IsInt() && exact.Num().BitLen() < 64 && got.Cmp(exact) != 0 {
			t.Fatalf("%q: %v billionths, Kubernetes says %v", text, got, exact)
		}
	})
}
