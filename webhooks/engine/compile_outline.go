package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Outline is what is known of a module without compiling it: its package, the names of its rules, and its references. It is much
// cheaper than a policy, so that an edit of a library can be traced to the policies that it affects.
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

// Below reports whether the module's package is pkg (dotted, without "data") or below it.
func (o *Outline) Below(pkg string) bool { return o.pkg.HasPrefix(packageRef(pkg)) }

// Reaches reports whether the module refers to another one's package, so that it must be compiled with that module.
func (o *Outline) Reaches(other *Outline) bool {
	return slices.ContainsFunc(o.refs, func(ref ast.Ref) bool { return ref.HasPrefix(other.pkg) })
}

// Unresolved returns the module's references at or below pkg that none of the modules in present defines, dotted and without
// "data".
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

// Clash returns a name that both modules define, or "". Rules of the same package would be merged, and a rule cannot have the name
// of a package.
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

// Defines reports whether the module has a rule of that name in package pkg (dotted, without "data").
func (o *Outline) Defines(pkg, rule string) bool {
	return o.pkg.Equal(packageRef(pkg)) && slices.Contains(o.rules, rule)
}
