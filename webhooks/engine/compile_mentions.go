package engine

import "github.com/open-policy-agent/opa/v1/ast"

// Mentions tells whether a text is a constant in the policy or its libraries: the name of a field that is read, for one.
func (p *Policy) Mentions(constant string) (found bool) {
	for _, m := range p.compiler.Modules {
		ast.WalkTerms(m, func(t *ast.Term) bool {
			found = found || ast.String(constant).Equal(t.Value)
			return found
		})
	}
	return found
}
