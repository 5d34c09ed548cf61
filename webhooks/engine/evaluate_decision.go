package engine

import (
	"net/http"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Decision is the result of a policy for a request. Without denials the request is allowed.
type Decision struct {
	Denials  []Denial
	Warnings []string
	Patches  []Patch
	// Outcome is for reconcilers that evaluate the same policy; null if the policy has no outcome.
	Outcome Value
	// Facts are the facts by name, as last read.
	Facts map[string]Fact
	// Confirmation is the result of confirming a denial.
	Confirmation Confirmation
}

// Confirmation is the result of evaluating a denial that was based on cached facts again with live ones.
type Confirmation string

// Results of confirming a denial.
const (
	NotNeeded   Confirmation = ""            // no denial, or all facts were live
	Confirmed   Confirmation = "confirmed"   // live facts give a denial too
	Refuted     Confirmation = "refuted"     // live facts allow: the cache was behind
	Unconfirmed Confirmation = "unconfirmed" // live facts could not be read; the denial stands
)

// Denial is one reason to deny the request.
type Denial struct {
	// Reason is a stable CamelCase word, declared in the rule's METADATA.
	Reason string `json:"reason"`
	// Message is for the user who made the request: the object and what is denied.
	Message string `json:"message"`
	// Cause is why it is denied, and Remedy what to do instead. Either is empty if Message contains it.
	Cause  string `json:"cause,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Code is the HTTP status that fits best: 403, 409, 422 or 429.
	Code int `json:"code"`
	// Details identify the blocking object.
	Details Details `json:"details,omitzero"`
	// Rule is the place of the rule that denied, as file:line.
	Rule string `json:"rule,omitempty"`
	// RuleRemedy is the remedy in the rule's METADATA; empty if each denial has its own.
	RuleRemedy string `json:"-"`
	// Final reports whether the rule's METADATA excludes overrides.
	Final bool `json:"-"`
}

// Statement returns the denial without a remedy: the message, and the cause if it is separate.
func (d *Denial) Statement() string {
	if d.Cause == "" {
		return d.Message
	}
	return d.Message + " because " + d.Cause
}

// WithRemedy returns the statement and the denial's own remedy.
func (d *Denial) WithRemedy() string {
	if d.Remedy == "" {
		return d.Statement()
	}
	return d.Statement() + "; " + d.Remedy
}

// Details identify the object or the field that a denial is about.
type Details struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Name  string `json:"name,omitempty"`
	UID   string `json:"uid,omitempty"`
	Field string `json:"field,omitempty"`
}

// Patch is one operation of RFC 6902, or a merge patch of RFC 7386, with no other field set.
type Patch struct {
	Op    string `json:"op,omitempty"`
	Path  string `json:"path,omitempty"`
	Value *Value `json:"value,omitempty"`
	Merge *Value `json:"merge,omitempty"`
}

// outcomeRules are those of a policy, indexed by their numbers in instrumented rules.
type outcomeRules []outcomeRule

// decision converts the matches of instrumented rules.
func (rules outcomeRules) decision(matches ast.Set) (*Decision, error) {
	decision := &Decision{}
	for _, t := range matches.Slice() {
		match := t.Value.(*ast.Array)
		index, _ := match.Elem(0).Value.(ast.Number).Int()
		r, values := rules[index], match.Elem(2).Value.(*ast.Array)
		if values.Len() == 0 {
			return nil, errorf(ContractViolated, "%s: this %s rule applies but its value is undefined", r.location.String(), r.name)
		}
		for i := range values.Len() {
			if err := decision.add(r, values.Elem(i)); err != nil {
				return nil, err
			}
		}
	}
	return decision, decision.order()
}

func (d *Decision) add(r outcomeRule, value *ast.Term) error {
	if err := shapeOf(r.name, value).check(r.name, value); err != nil {
		return errorf(ContractViolated, "%s: %w", r.location.String(), err)
	}
	switch r.name {
	case ruleWarn:
		if s := text(value); !slices.Contains(d.Warnings, s) {
			d.Warnings = append(d.Warnings, s)
		}
	case rulePatch:
		d.Patches = append(d.Patches, patchOf(valueOf(value)))
	default:
		denial := denialOf(r, valueOf(value))
		if denial.Reason != r.reason {
			return errorf(ContractViolated, "%s: deny has the reason %q, but its METADATA has %q", denial.Rule, denial.Reason, r.reason)
		}
		if !slices.Contains(d.Denials, denial) {
			d.Denials = append(d.Denials, denial)
		}
	}
	return nil
}

// order makes the decision deterministic: denials in the order of their rules, patches by path, after merge patches, which create
// the parents that they may need. Two patches of the same field are an error, because their order would matter.
func (d *Decision) order() error {
	slices.SortStableFunc(d.Patches, func(a, b Patch) int { return strings.Compare(a.Path, b.Path) })
	var fields []patched
	for _, p := range d.Patches {
		for _, path := range p.Paths() {
			field := patched{path, p.Merge != nil}
			if slices.ContainsFunc(fields, field.clashes) {
				return errorf(ContractViolated, "more than one patch of %s", path)
			}
			fields = append(fields, field)
		}
	}
	return nil
}

// patched is a field that a patch changes.
type patched struct {
	path   string
	merged bool
}

// clashes reports whether a field equals an earlier one, or one of them is merged into the other.
func (f patched) clashes(earlier patched) bool {
	return f.path == earlier.path && !strings.HasSuffix(f.path, "/-") ||
		earlier.merged && (strings.HasPrefix(earlier.path, f.path+"/") || f.merged && strings.HasPrefix(f.path, earlier.path+"/"))
}

// denialOf converts a denial of the right shape.
func denialOf(r outcomeRule, said Value) Denial {
	of := func(key string) string { return said.Get("details").Get(key).Text() }
	denial := Denial{
		Reason: said.Get("reason").Text(), Message: said.Get("message").Text(), Code: http.StatusForbidden,
		Cause: said.Get("cause").Text(), Remedy: said.Get("remedy").Text(),
		Rule: r.location.String(), RuleRemedy: r.remedy, Final: r.final,
		Details: Details{Group: of("group"), Kind: of("kind"), Name: of("name"), UID: of("uid"), Field: of("field")},
	}
	if code, ok := said.Get("code").orNull().Value.(ast.Number); ok {
		denial.Code, _ = code.Int()
	}
	return denial
}

// patchOf converts a patch of the right shape.
func patchOf(said Value) Patch {
	if merge, ok := said.member("merge"); ok {
		return Patch{Merge: &merge}
	}
	patch := Patch{Op: said.Get("op").Text(), Path: said.Get("path").Text()}
	if value, ok := said.member("value"); ok {
		patch.Value = &value
	}
	return patch
}
