package plan

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// builtin returns the result of a call; nil if it is undefined.
type builtin func(m *machine, operands []*ast.Term) (*ast.Term, error)

// builtinNamed returns a builtin; nil if there is none of that name.
func builtinNamed(name string) builtin {
	call, declared := topdown.GetBuiltin(name), ast.BuiltinMap[name]
	if call == nil || declared == nil {
		return nil
	}
	return func(m *machine, operands []*ast.Term) (*ast.Term, error) {
		if onDocument := onDocuments[name]; onDocument != nil {
			if d, is := operands[0].Value.(Document); is {
				if found := onDocument(d, operands); found != nil {
					return found, nil
				}
			}
		}
		for i, o := range operands {
			if tooLarge(o) {
				return nil, errSlow
			}
			operands[i] = whole(o)
		}
		var all []*ast.Term
		err := call(m.context, operands, func(result *ast.Term) error {
			if result == nil { // it has none
				result = ast.InternedTerm(true)
			}
			all = append(all, result)
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case declared.Relation:
			return ast.ArrayTerm(all...), nil
		case len(all) == 0:
			return nil, nil
		}
		return all[0], nil
	}
}

// mostParts and longestText limit the operands of builtins, which nothing can interrupt. topdown's evaluation can be left behind.
const mostParts, longestText = 100_000, 1 << 20

func tooLarge(operand *ast.Term) bool {
	if text, ok := operand.Value.(ast.String); ok {
		return len(text) > longestText
	}
	n, _ := size(operand)
	return n > mostParts
}

// onDocuments are builtins that need not convert a document that is their first operand. Nil means that they need to.
var onDocuments = map[string]func(d Document, operands []*ast.Term) *ast.Term{
	ast.IsObject.Name: func(d Document, _ []*ast.Term) *ast.Term { return ast.InternedTerm(!d.IsList()) },
	ast.IsArray.Name:  func(d Document, _ []*ast.Term) *ast.Term { return ast.InternedTerm(d.IsList()) },
	ast.Equal.Name: func(_ Document, operands []*ast.Term) *ast.Term {
		return ast.InternedTerm(equal(operands[0], operands[1]))
	},
	ast.NotEqual.Name: func(_ Document, operands []*ast.Term) *ast.Term {
		return ast.InternedTerm(!equal(operands[0], operands[1]))
	},
	ast.Count.Name: func(d Document, _ []*ast.Term) *ast.Term { return ast.InternedTerm(d.Len()) },
	ast.ObjectKeys.Name: func(d Document, _ []*ast.Term) *ast.Term {
		if d.IsList() {
			return nil
		}
		names := ast.NewSet()
		d.Until(func(name, _ *ast.Term) bool {
			names.Add(name)
			return false
		})
		return ast.NewTerm(names)
	},
	ast.ObjectGet.Name: func(d Document, operands []*ast.Term) *ast.Term {
		if d.IsList() {
			return nil
		}
		found, path := operands[0], []*ast.Term{operands[1]}
		if list, ok := operands[1].Value.(*ast.Array); ok {
			path = nil
			list.Foreach(func(step *ast.Term) { path = append(path, step) })
		}
		for _, step := range path {
			if found = found.Get(step); found == nil {
				return operands[2]
			}
		}
		return found
	},
}
