package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Unfollowed returns the places at which the policy uses all of its input, or uses it in a way that cannot be followed to members.
// Then the whole input is built for every decision, and decisions are not cached, which is only slower.
func (p *Policy) Unfollowed() CompileErrors {
	if a := p.fast; !a.read.all && (a.read.every == nil || len(a.read.members) == 0) {
		return nil
	}
	var places CompileErrors
	note := func(l *ast.Location) {
		if l == nil {
			return
		}
		place := CompileError{File: l.File, Row: l.Row, Col: l.Col, Message: firstLine(string(l.Text))}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	f := newFollower(p.compiler)
	f.lost = note
	for _, m := range p.compiler.Modules {
		ast.WalkExprs(m, func(e *ast.Expr) bool {
			if len(e.With) > 0 {
				note(e.Location)
			}
			return false
		})
	}
	f.from(p.outputs()...)
	if f.steps > mostSteps {
		places = append(places, CompileError{File: p.name, Message: "values of functions that are handed to functions again"})
	}
	slices.SortFunc(places, func(a, b CompileError) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row), cmp.Compare(a.Col, b.Col))
	})
	return places
}

// recordDynamicLookup records that a member of the input is looked up by a name that is only known from the request.
func (f *follower) recordDynamicLookup(place *projection) {
	if place == f.input && f.lost != nil {
		f.lost(f.at)
	}
}

func firstLine(text string) string {
	first, _, more := strings.Cut(text, "\n")
	if more {
		first += " ..."
	}
	return first
}
