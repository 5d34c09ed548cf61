package engine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Decision is what a policy says about a request. That nothing was said means: allowed.
type Decision struct {
	Denials  []Denial
	Warnings []string
	Patches  []Patch
	// Outcome is what reconcilers that ask the same policy act on; null if the policy has no outcome.
	Outcome Value
	// Facts by name, as last read.
	Facts map[string]Fact
	// Confirmation tells what became of a denial that rested on cached facts.
	Confirmation Confirmation
	// Way is how the decision was made.
	Way Way
}

// Confirmation is the result of asking once more, live, before a denial is returned.
type Confirmation string

// What became of a denial that rested on cached facts.
const (
	NotNeeded   Confirmation = ""            // no denial, or all facts were live
	Confirmed   Confirmation = "confirmed"   // live facts give a denial too
	Refuted     Confirmation = "refuted"     // live facts allow: the cache was behind
	Unconfirmed Confirmation = "unconfirmed" // live facts could not be read; the denial stands
)

// Denial is one reason to refuse the request.
type Denial struct {
	// Reason is a stable CamelCase word, declared in the rule's METADATA.
	Reason string `json:"reason"`
	// Message is for the person who made the request.
	Message string `json:"message"`
	// Code is the HTTP status that fits best: 403, 409, 422 or 429.
	Code int `json:"code"`
	// Details names what blocks.
	Details Details `json:"details,omitzero"`
	// Rule is the place of the rule that denied, as file:line.
	Rule string `json:"rule,omitempty"`
	// Remedy is what to do, as the rule's METADATA says; empty if the message says it itself.
	Remedy string `json:"-"`
	// Final tells that no override helps, as the rule's METADATA says.
	Final bool `json:"-"`
}

// Details points at the object or the field that a denial is about.
type Details struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Name  string `json:"name,omitempty"`
	UID   string `json:"uid,omitempty"`
	Field string `json:"field,omitempty"`
}

// Patch is one operation of RFC 6902.
type Patch struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value *Value `json:"value,omitempty"`
}

var codes = []int{http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests}

// decision is what the witnesses found.
func (p *Policy) decision(matches ast.Set) (*Decision, error) {
	decision := &Decision{}
	for _, t := range matches.Slice() {
		match := t.Value.(*ast.Array)
		r, values := p.ruleOf(match), match.Elem(2).Value.(*ast.Array)
		if values.Len() == 0 {
			return nil, errorf(ContractViolated, "%s: this %s rule applies but its value is undefined", place(r.location), r.name)
		}
		for i := range values.Len() {
			if err := decision.add(r, values.Elem(i)); err != nil {
				return nil, err
			}
		}
	}
	return decision, decision.order()
}

func (p *Policy) ruleOf(match *ast.Array) outcomeRule {
	index, _ := match.Elem(0).Value.(ast.Number).Int()
	return p.rules[index]
}

func (d *Decision) add(r outcomeRule, value *ast.Term) error {
	switch r.name {
	case ruleWarn:
		s := text(value)
		if s == "" {
			return errorf(ContractViolated, "%s: warn must contain non-empty strings, not %v", place(r.location), value)
		}
		if !slices.Contains(d.Warnings, s) {
			d.Warnings = append(d.Warnings, s)
		}
	case rulePatch:
		patch, err := decodePatch(value)
		if err != nil {
			return errorf(ContractViolated, "%s: %w", place(r.location), err)
		}
		d.Patches = append(d.Patches, patch)
	default:
		denial, err := decodeDenial(r, value)
		if err != nil {
			return errorf(ContractViolated, "%s: %w", place(r.location), err)
		}
		if !slices.Contains(d.Denials, denial) {
			d.Denials = append(d.Denials, denial)
		}
	}
	return nil
}

// order makes the decision the same for the same input: denials in the order of their rules, patches by path.
func (d *Decision) order() error {
	slices.SortStableFunc(d.Patches, func(a, b Patch) int { return strings.Compare(a.Path, b.Path) })
	for i := 1; i < len(d.Patches); i++ {
		if a, b := d.Patches[i-1], d.Patches[i]; a.Path == b.Path && !strings.HasSuffix(a.Path, "/-") {
			return errorf(ContractViolated, "two patches of %s", a.Path)
		}
	}
	return nil
}

func decodeDenial(r outcomeRule, value *ast.Term) (Denial, error) {
	denial := Denial{Code: http.StatusForbidden}
	if err := decodeStrictly(value, &denial); err != nil {
		return denial, fmt.Errorf("deny: %w", err)
	}
	denial.Rule, denial.Remedy, denial.Final = place(r.location), r.remedy, r.final
	switch {
	case denial.Reason != r.reason:
		return denial, fmt.Errorf("deny says reason %q, its METADATA %q", denial.Reason, r.reason)
	case denial.Message == "":
		return denial, fmt.Errorf("deny has no message")
	case !slices.Contains(codes, denial.Code):
		return denial, fmt.Errorf("deny has code %d, not one of %v", denial.Code, codes)
	}
	return denial, nil
}

func decodePatch(value *ast.Term) (Patch, error) {
	var patch Patch
	object, ok := value.Value.(ast.Object)
	if !ok {
		return patch, fmt.Errorf("patch must contain objects, not %v", value)
	}
	for _, key := range object.Keys() {
		member := object.Get(key)
		switch text(key) {
		case "op":
			patch.Op = text(member)
		case "path":
			patch.Path = text(member)
		case "value":
			patch.Value = &Value{term: member}
		default:
			return patch, fmt.Errorf("patch has an unknown key %v", key)
		}
	}
	valued := patch.Op == "add" || patch.Op == "replace"
	switch {
	case !valued && patch.Op != "remove":
		return patch, fmt.Errorf("patch has op %q, not add, replace or remove", patch.Op)
	case !strings.HasPrefix(patch.Path, "/"):
		return patch, fmt.Errorf("patch has path %q, not a JSON pointer", patch.Path)
	case valued != (patch.Value != nil):
		return patch, fmt.Errorf("patch %s %s: value is for add and replace", patch.Op, patch.Path)
	}
	return patch, nil
}

// decodeStrictly fills into from a term and refuses keys that it does not have.
func decodeStrictly(value *ast.Term, into any) error {
	decoded, err := ast.JSON(value.Value)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(decoded)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(strings.NewReader(string(encoded)))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

func place(l *ast.Location) string { return fmt.Sprintf("%s:%d", l.File, l.Row) }
