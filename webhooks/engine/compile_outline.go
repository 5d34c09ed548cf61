package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Outline is what a module tells before it is compiled: its package, the names of its rules, and what it refers to. It is
// much cheaper to have than a policy, so that it can be asked what an edit of a library concerns.
type Outline struct {
	pkg   ast.Ref
	rules []string
	refs  []ast.Ref
}

// ParseOutline parses a module. The error is [CompileErrors].
func ParseOutline(m Module) (*Outline, error) {
	parsed, errs := parse([]Module{m})
	if len(errs) > 0 {
		return nil, errs
	}
	o := &Outline{pkg: parsed[0].Package.Path}
	for _, r := range parsed[0].Rules {
		if name := headName(r); !slices.Contains(o.rules, name) {
			o.rules = append(o.rules, name)
		}
	}
	seen := map[string]bool{}
	walkData(parsed[0], func(ref ast.Ref) {
		if key := ref.String(); !seen[key] {
			seen[key] = true
			o.refs = append(o.refs, ref.Copy())
		}
	})
	return o, nil
}

// Below tells whether the module's package is the one given, dotted and without "data", or below it.
func (o *Outline) Below(pkg string) bool { return o.pkg.HasPrefix(packageRef(pkg)) }

// Reaches tells whether the module refers into another one's package. What it reaches must be compiled with it.
func (o *Outline) Reaches(other *Outline) bool {
	return slices.ContainsFunc(o.refs, func(ref ast.Ref) bool { return ref.HasPrefix(other.pkg) })
}

// Unresolved gives what the module refers to at or below a package and none of those present defines, dotted and without "data".
func (o *Outline) Unresolved(pkg string, present []*Outline) []string {
	root := packageRef(pkg)
	var missing []string
	for _, ref := range o.refs {
		if ref.HasPrefix(root) && !slices.ContainsFunc(present, func(p *Outline) bool { return ref.HasPrefix(p.pkg) }) {
			missing = append(missing, dotted(ref))
		}
	}
	return missing
}

// Clash gives a name that both of two modules define, "" if there is none. Their rules would become one another's if they
// have the same package; a rule cannot be where the other's package is.
func (o *Outline) Clash(other *Outline) string {
	if o.pkg.Equal(other.pkg) {
		return "package " + dotted(o.pkg)
	}
	for _, pair := range [][2]*Outline{{o, other}, {other, o}} {
		outer, inner := pair[0], pair[1]
		if depth := len(outer.pkg); len(inner.pkg) > depth && inner.pkg.HasPrefix(outer.pkg) {
			if name, ok := inner.pkg[depth].Value.(ast.String); ok && slices.Contains(outer.rules, string(name)) {
				return "rule " + dotted(outer.pkg) + "." + string(name)
			}
		}
	}
	return ""
}

// Defines tells whether the module has a rule of that name in that package, dotted and without "data".
func (o *Outline) Defines(pkg, rule string) bool {
	return o.pkg.Equal(packageRef(pkg)) && slices.Contains(o.rules, rule)
}
