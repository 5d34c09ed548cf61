package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Random policies and requests. The policies are made of everything that decides how an evaluation can be made shorter: paths,
// variables, functions, values of rules, iteration, negation, constants. What they say makes no sense.

type random struct {
	*rand.Rand
	rules  []string // helpers that the bodies need
	locals int
}

func (r *random) pick(from ...string) string { return from[r.IntN(len(from))] }

var keys = []string{"a", "b", "c"}

func (r *random) key() string { return r.pick(keys...) }

// path into the request, of one to four members.
func (r *random) path() string {
	p := "input.request"
	for range 1 + r.IntN(3) {
		p += "." + r.key()
	}
	return p
}

func (r *random) fact() string { return r.pick("input.facts.list", "input.facts.one") }

func (r *random) scalar() string { return r.pick(`1`, `2`, `"a"`, `"b"`, `true`, `false`, `null`) }

func (r *random) local() string {
	r.locals++
	return fmt.Sprintf("v%d", r.locals)
}

func (r *random) helper(name, format string, args ...any) string {
	r.locals++
	name = fmt.Sprintf("_%s%d", name, r.locals)
	r.rules = append(r.rules, strings.ReplaceAll(fmt.Sprintf(format, args...), "NAME", name))
	return name
}

// value gives an expression whose value may be a part of the input, with statements that it needs before it.
func (r *random) value() (before, expression string) {
	x, k, p := r.local(), r.key(), r.path()
	if r.IntN(3) == 0 {
		return "", r.severalValued(r.key()) + "." + k
	}
	switch r.IntN(13) {
	case 0:
		return "", p
	case 1:
		return fmt.Sprintf("%s := %s; ", x, p), x + "." + k
	case 2:
		b, e := r.value()
		return fmt.Sprintf("%s%s := %s; ", b, x, e), x + "." + k
	case 3:
		return "", fmt.Sprintf("%s.%s", r.helper("doc", "NAME := %s", p), k)
	case 4:
		return "", fmt.Sprintf("%s(%s)", r.helper("member", "NAME(x) := x.%s", k), p)
	case 5:
		b, e := r.value()
		return b, fmt.Sprintf("lib.member_%s(%s)", k, e)
	case 6:
		return "", fmt.Sprintf("object.get(%s, %q, %s)", p, k, r.scalar())
	case 7:
		return "", fmt.Sprintf("object.get(%s, [%q, %q], %s)", p, k, r.key(), r.path())
	case 8:
		return fmt.Sprintf("some %s in %s; ", x, p), x + "." + k
	case 9:
		return fmt.Sprintf("some %s in %s; ", x, r.fact()), x + "." + k
	case 10:
		return fmt.Sprintf("%s := {%q: %s}; ", x, k, p), x + "." + k
	case 11:
		return "", "data.parameters." + k
	default:
		return "", r.fact() + "." + k
	}
}

// severalValued gives a reference to a rule, or the call of a function, that may have several values: they are compared as a whole.
func (r *random) severalValued(k string) string {
	p := r.path()
	switch r.IntN(14) {
	case 0:
		return r.helper("one", "NAME := v if some v in %s", p)
	case 1:
		return r.helper("one", "NAME := v if { some k, v in %s; v.%s == %s }", p, k, r.scalar())
	case 2:
		return r.helper("one", "NAME := %s[_]", p)
	case 3:
		return r.helper("two", "NAME := %s\n\nNAME := %s", p, r.path())
	case 4:
		return r.helper("two", "NAME := %s if %s == %s\n\nNAME := %s", p, r.path(), r.scalar(), r.path())
	case 5:
		return fmt.Sprintf("%s(%s)", r.helper("two", "NAME(x) := x.%s\n\nNAME(x) := x.%s", k, r.key()), p)
	case 6:
		return fmt.Sprintf("%s(%s)", r.helper("one", "NAME(x) := v if some v in x"), p)
	case 7:
		return fmt.Sprintf("%s[%s]", r.helper("table", "NAME[v.%s] := v if some v in %s", k, p), r.scalar())
	case 8:
		return fmt.Sprintf("%s.%s", r.helper("member", "NAME.%s := %s\n\nNAME[k] := v if some k, v in %s", k, p, r.path()), k)
	case 9:
		return fmt.Sprintf("%s[_]", r.helper("table", "NAME := {v.%s: v | some v in %s}", k, p))
	case 10:
		return r.helper("other", "NAME := {} if %s == %s\n\nelse := v if some v in %s", r.path(), r.scalar(), p)
	case 11:
		return r.helper("empty", "NAME := {}\n\nNAME := %s if is_object(%s)", p, p)
	case 12:
		return r.helper("walked", "NAME := v if walk(%s, [[%q, _], v])", p, k)
	default:
		return r.pick("sub.one", "sub.two", "data.toy.p.sub[_]", "sub.apart("+p+")")
	}
}

// condition gives a statement that holds or does not.
func (r *random) condition() string {
	b, e := r.value()
	b2, e2 := r.value()
	x, k := r.local(), r.key()
	switch r.IntN(24) {
	case 18:
		return fmt.Sprintf("%sequal(%s, %s, %s)", b, e, r.scalar(), r.path())
	case 19:
		return fmt.Sprintf("%sis_object(%s, %s)", b, e, r.path())
	case 20:
		return fmt.Sprintf("count({y | some y in %s}) > %d", r.path(), r.IntN(2))
	case 21:
		return fmt.Sprintf("%s%s%s(%s, %s)", b, b2, r.helper("alike", "default NAME(_, _) := false\n\nNAME(x, y) if x == y"), e, e2)
	case 22:
		return fmt.Sprintf("object.union(%s, %s).%s == %s", r.path(), r.path(), k, r.scalar())
	case 23:
		return fmt.Sprintf("%s%s%s in {json.marshal(y) | some y in %s}", b, b2, "json.marshal("+e+")", e2)
	case 0, 1, 2:
		return fmt.Sprintf("%s%s == %s", b, e, r.scalar())
	case 3:
		return fmt.Sprintf("%s%s != %s", b, e, r.scalar())
	case 4:
		return fmt.Sprintf("%s%s%s == %s", b, b2, e, e2)
	case 5:
		return fmt.Sprintf("%s%s%s != %s", b, b2, e, e2)
	case 6:
		return b + r.pick("is_object", "is_array", "is_string", "is_number", "is_null") + "(" + e + ")"
	case 7:
		return fmt.Sprintf("%stype_name(%s) == %s", b, e, r.pick(`"object"`, `"array"`, `"string"`, `"null"`))
	case 8:
		return fmt.Sprintf("%sis_object(%s); count(%s) > %d", b, e, e, r.IntN(3))
	case 9:
		return fmt.Sprintf("not %s", r.helper("holds", "NAME if { %s%s == %s }", b, e, r.scalar()))
	case 10:
		return fmt.Sprintf("%s%s := %s; every y in %s { y.%s == %s }", b, x, e, x, k, r.scalar())
	case 11:
		return fmt.Sprintf("count([y | some y in %s; y.%s == %s]) > %d", r.path(), k, r.scalar(), r.IntN(2))
	case 12:
		return fmt.Sprintf("%s%s in %s", b, e, r.pick(`{1, "a"}`, `["b", true]`, r.path(), r.fact()))
	case 13:
		return fmt.Sprintf("[%s, _] := [%s, 1]; %s.%s == %s", x, r.path(), x, k, r.scalar())
	case 14:
		return fmt.Sprintf("%s(%s, %s)", r.helper("same", "NAME(x, y) if x == y\n\nNAME(x, y) if x.%s == y.%s", k, r.key()), r.path(), r.path())
	case 15:
		return fmt.Sprintf("%s == %d", r.helper("chain", "NAME := 1 if %s == %s\n\nelse := 2 if %s.%s == %s\n\nelse := 3",
			r.path(), r.scalar(), r.path(), k, r.scalar()), 1+r.IntN(3))
	case 16:
		return fmt.Sprintf("%q in %s", k, r.helper("set", "NAME contains y.%s if some y in %s", r.key(), r.path()))
	default:
		return fmt.Sprintf("%s.%s == %s", r.helper("table", "NAME[k] := v.%s if some k, v in %s", r.key(), r.path()), k, r.scalar())
	}
}

func (r *random) conditions() string {
	all := make([]string, 1+r.IntN(2))
	for i := range all {
		all[i] = r.condition()
	}
	return strings.Join(all, "; ")
}

const randomLibrary = `# METADATA
# title: T
# description: D
package toy.lib

member_a(x) := x.a

member_b(x) := object.get(x, "b", x.c)

member_c(x) := y if {
	y := x.c
	is_object(y)
}

member_c(x) := x.c.b if is_string(x.c.b)
`

// randomPackage is below that of the policy.
const randomPackage = `package toy.p.sub

one := v if some v in %s

two := %s

two := %s

apart(x) := x.%s

apart(x) := x.%s
`

// source of a policy. Facts are filled in, or evaluated, and there are constants among the helpers.
func (r *random) source() Source {
	facts := "facts.list := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\", \"namespace\": input.request.namespace}\n\n"
	if r.IntN(3) == 0 {
		wanted := r.helper("wanted", "NAME if { %s }", strings.ReplaceAll(r.condition(), "input.facts", "data.parameters"))
		facts = strings.TrimSpace(facts) + " if " + wanted + "\n\nfacts.list := null if not " + wanted + "\n\n"
	}
	facts += "facts.one := {\"apiVersion\": \"toy/v1\", \"kind\": \"Loan\", \"name\": \"n\"}\n\n"
	body := "import data.toy.lib\nimport data.toy.p.sub\n\n" + facts
	body += fmt.Sprintf("valid_input if not %s\n\n", r.helper("odd", "NAME if { %s }", r.conditions()))
	for i := range 1 + r.IntN(3) {
		body += denyMetadata + fmt.Sprintf("deny contains {\"reason\": \"R\", \"message\": $\"%d {%s}\"} if { %s }\n\n", i, r.path(), r.conditions())
	}
	body += fmt.Sprintf("warn contains $\"w {%s}\" if { %s; data.parameters.%s == %s }\n\n", r.path(), r.condition(), r.key(), r.scalar())
	r.rules = append(r.rules, "_use if lib.member_a({})") // the import must be used
	src := policy(body + strings.Join(append(r.rules, "_use_sub if sub.one"), "\n\n") + "\n")
	src.Modules = append(src.Modules, Module{"sub.rego", fmt.Sprintf(randomPackage, r.path(), r.path(), r.path(), r.key(), r.key())})
	src.Libraries = []Module{{"lib.rego", randomLibrary}}
	src.Parameters = []byte(fmt.Sprintf(`{"a": %s, "b": {"a": %s}, "c": [%s]}`, r.scalar(), r.scalar(), r.scalar()))
	return src
}

// like gives a copy of a document that differs in one place: a member is another one, is gone, has another name, or is what
// another member is, almost.
func (r *random) like(document any) any {
	var places []map[string]any
	var look func(any)
	look = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			places = append(places, node)
			for _, k := range slices.Sorted(maps.Keys(node)) {
				look(node[k])
			}
		case []any:
			for _, element := range node {
				look(element)
			}
		}
	}
	clone := deepCopy(document)
	look(clone)
	if len(places) == 0 {
		return r.document(2)
	}
	at, k := places[r.IntN(len(places))], r.key()
	switch r.IntN(7) {
	case 5:
		at[r.key()] = r.twin(at[k])
	case 6:
		at[k] = []any{at[k], r.twin(at[k])}
	case 0:
		delete(at, k)
	case 1:
		at[r.key()] = at[k]
		delete(at, k)
	case 2:
		at[r.key()] = deepCopy(at[k])
	case 3:
		at[k] = r.like(at[r.key()])
	default:
		at[k] = r.document(2)
	}
	return clone
}

// twin gives a copy that differs in what nobody reads.
func (r *random) twin(document any) any {
	clone := deepCopy(document)
	if object, ok := clone.(map[string]any); ok {
		object["unread"] = r.IntN(3)
	}
	return clone
}

func deepCopy(document any) any {
	switch node := document.(type) {
	case map[string]any:
		clone := maps.Clone(node)
		for k, v := range clone {
			clone[k] = deepCopy(v)
		}
		return clone
	case []any:
		clone := slices.Clone(node)
		for i, v := range clone {
			clone[i] = deepCopy(v)
		}
		return clone
	}
	return document
}

// document is JSON that has some of the paths.
func (r *random) document(depth int) any {
	switch n := r.IntN(10); {
	case depth == 0 || n < 1:
		return []any{1, 2, "a", "b", true, false, nil}[r.IntN(7)]
	case n < 3:
		list := make([]any, r.IntN(3))
		for i := range list {
			if list[i] = r.document(depth - 1); i > 0 && r.IntN(2) == 0 {
				list[i] = r.twin(list[0])
			}
		}
		return list
	default:
		object := map[string]any{}
		for _, k := range keys {
			if r.IntN(6) > 0 {
				object[k] = r.document(depth - 1)
			}
		}
		object["unread"] = r.IntN(3)
		return object
	}
}
