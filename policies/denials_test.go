package policies

import (
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Cause and remedy of a denial are fields of their own, because events and short reports leave out parts of it. No program cuts a message.
func TestMessagesHaveNeitherCauseNorRemedy(t *testing.T) {
	policies, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, p := range policies {
		for _, m := range p.Spec.Modules {
			module, err := ast.ParseModule(m.Name, m.Source)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range module.Rules {
				if r.Head.Name != "deny" || r.Head.Key == nil {
					continue
				}
				denial, ok := r.Head.Key.Value.(ast.Object)
				if !ok {
					t.Fatalf("%s: the denial is %s", r.Location, r.Head.Key)
				}
				checked++
				ast.WalkTerms(denial.Get(ast.StringTerm("message")), func(term *ast.Term) bool {
					text, _ := term.Value.(ast.String)
					if strings.Contains(string(text), " because ") {
						t.Errorf("%s: put what follows because into cause: %s", r.Location, text)
					}
					if len(text) > 2 && strings.Contains(string(text), "; ") {
						t.Errorf("%s: put what follows the semicolon into remedy: %s", r.Location, text)
					}
					return false
				})
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d rules were checked", checked)
	}
}
