package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Facts are read in two rounds: a fact may use facts that use none, so that a policy queries only the objects that it needs.

// round is the facts that are read together, and the query for their queries; nil without facts.
type round struct {
	facts []string
	ask   *query
}

// inRounds divides the facts into rounds.
func (p *Policy) inRounds() error {
	var errs CompileErrors
	reads := map[string]map[string]*ast.Location{}
	slices.Sort(p.facts)
	for _, name := range p.facts {
		if reads[name] = p.factsReadBy(name); len(reads[name]) == 0 {
			p.first.facts = append(p.first.facts, name)
		} else {
			p.second.facts = append(p.second.facts, name)
		}
	}
	for _, name := range p.second.facts {
		for other, at := range reads[name] {
			if len(reads[other]) > 0 {
				errs.add(at, "facts.%s reads input.facts.%s, which reads facts itself: a fact may read only facts that read none", name, other)
			}
		}
	}
	if len(errs) > 0 {
		return errs
	}
	var err error
	switch {
	case len(p.facts) == 0:
	case len(p.second.facts) == 0:
		p.first.ask, err = p.query(fmt.Sprintf("facts = [x | x = %v.facts]", p.pkg))
	default: // separately: facts of the second round cannot be evaluated in the first
		if p.first.ask, err = p.askFor(p.first.facts); err == nil {
			p.second.ask, err = p.askFor(p.second.facts)
		}
	}
	return err
}

// askFor returns the query for the facts of those names. Facts that are undefined are left out.
func (p *Policy) askFor(names []string) (*query, error) {
	each := make([]string, len(names))
	for i, name := range names {
		each[i] = fmt.Sprintf("{%q: x | x = %v.facts[%[1]q]}", name, p.pkg)
	}
	return p.query(fmt.Sprintf("facts = [object.union_n([%s])]", strings.Join(each, ", ")))
}

// factsReadBy returns the facts that the rules of a fact read, directly or through other rules; each with a place where it is read.
func (p *Policy) factsReadBy(name string) map[string]*ast.Location {
	read := map[string]*ast.Location{}
	seen := map[*ast.Rule]bool{}
	var visit func(*ast.Rule)
	visit = func(r *ast.Rule) {
		if seen[r] {
			return
		}
		seen[r] = true
		ast.WalkRefs(r, func(ref ast.Ref) bool {
			if len(ref) > len(inputFacts) && ref.HasPrefix(inputFacts) {
				read[text(ref[len(inputFacts)])] = ref[0].Location
			}
			return false
		})
		for dependency := range p.compiler.Graph.Dependencies(r) {
			if other, ok := dependency.(*ast.Rule); ok {
				visit(other)
			}
		}
	}
	for _, r := range p.rulesNamed(ruleFacts, name) {
		visit(r)
	}
	return read
}
