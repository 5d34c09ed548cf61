package tools

import (
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/webhooks/engine"
)

// The docs show the matrix; this is what keeps them true.
func TestDocsShowTheMatrix(t *testing.T) {
	out, _, _ := execute(t, "matrix", "-o", "markdown")
	if !strings.Contains(page(t, "operations.md"), out) {
		t.Errorf("docs/operations.md does not have the table of `sallyport matrix -o markdown`:\n%s", out)
	}
}

// The policy that explains the rules must be one that works. That of the tutorial is walked in test/walks/vcenter.
func TestDocsShowAPolicyThatCompiles(t *testing.T) {
	_, section, _ := strings.Cut(page(t, "policies.md"), "\n## The questions a policy answers\n")
	_, rest, _ := strings.Cut(section, "```rego\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/policies.md has no example in Rego")
	}
	p, err := engine.Compile(engine.Source{
		Name: "example", Package: "sallyport.operations.example", Timeout: time.Minute,
		Modules: []engine.Module{{Name: "example.rego", Source: example}},
		Reads:   []engine.Read{{APIVersion: "sallyport.dev/v1alpha1", Kind: "VirtualMachine"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	request, err := engine.ValueOf(operationRequest(forms[0]))
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Decide(t.Context(), engine.Input{Request: request}, matrixWorld{forms[0]})
	if err != nil || len(d.Denials) != 1 || d.Denials[0].Statement() != "VirtualMachine vm: no operation is allowed because running is in progress" {
		t.Errorf("got %+v, %v", d, err)
	}
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
