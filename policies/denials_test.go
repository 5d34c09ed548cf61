package policies

import (
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A denial has its way out in a field of its own, which events and short reports leave out. No program cuts it off a message.
func TestMessagesHaveNoRemedy(t *testing.T) {
	policies, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, p := range policies {
		if strings.HasPrefix(p.Name, "deletion-") {
			continue // their messages still have it
		}
		for _, m := range p.Spec.Modules {
			module, err := ast.ParseModuleWithOpts(m.Name, m.Source, ast.ParserOptions{ProcessAnnotation: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range module.Rules {
				if r.Head.Name != "deny" || r.Head.Key == nil || !hasRemedyOfItsOwn(r) {
					continue
				}
				denial, ok := r.Head.Key.Value.(ast.Object)
				if !ok {
					t.Fatalf("%s: the denial is %s", r.Location, r.Head.Key)
				}
				checked++
				ast.WalkTerms(denial.Get(ast.StringTerm("message")), func(term *ast.Term) bool {
					if text, ok := term.Value.(ast.String); ok && len(text) > 2 && strings.Contains(string(text), "; ") {
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

// hasRemedyOfItsOwn reports whether the METADATA of a rule leaves the remedy to its denials.
func hasRemedyOfItsOwn(r *ast.Rule) bool {
	for _, a := range r.Annotations {
		if a.Custom["remedyInMessage"] != nil {
			return true
		}
	}
	return false
}
