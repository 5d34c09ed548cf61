package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/record"
)

// Explainer explains the results of policies.
type Explainer struct {
	// Set has the active policies, States the state of each RegoPolicy; States is nil if only a set is known.
	Set    *catalog.Set
	States []catalog.State
	// Facts answers the policies' queries.
	Facts decision.FactSource
	// Policy is the only policy to explain; empty means all.
	Policy string
	// Own reports whether the facts are read with the user's rights. Sallyport may read more than the user, so the result can be
	// unknown then.
	Own bool
}

// Policy is the explanation of one policy. Its JSON is a stable format: fields are added, never changed.
type Policy struct {
	Policy   string `json:"policy"`
	Endpoint string `json:"endpoint"`
	// Summary is the explanation in one line.
	Summary string `json:"summary"`
	// Verdict is not_asked or unknown, or as in decision records: allowed, denied, warned, audited, overridden, error_denied, error_allowed.
	Verdict string                     `json:"verdict"`
	OnError v1alpha1.PolicyErrorAction `json:"onError,omitempty"`
	// Broken is why the current RegoPolicy cannot be used. LastGood reports whether its last good revision is active instead.
	Broken   string `json:"broken,omitempty"`
	LastGood bool   `json:"lastGood,omitempty"`
	// Unasked is why the API server does not call the policy's webhook, whatever it matches.
	Unasked string           `json:"unasked,omitempty"`
	Match   *catalog.Meeting `json:"match,omitempty"`
	// Override is the outcome of the object's override; empty if it has none, or none was needed.
	Override string `json:"override,omitempty"`
	// Facts are all facts that the policy declares.
	Facts []Fact `json:"facts,omitempty"`
	// Input is the expression of valid_input that does not hold.
	Input *Needs `json:"input,omitempty"`
	Rules []Rule `json:"rules,omitempty"`
	// Cause and Error are set if the policy could not be evaluated.
	Cause engine.Cause `json:"cause,omitempty"`
	Error string       `json:"error,omitempty"`

	headline  string // the Summary without the name
	inSummary bool   // the Summary contains Unasked
}

// Fact is the summary of a fact.
type Fact struct {
	Name  string `json:"name"`
	Place string `json:"place,omitempty"`
	// Query is the query; empty if the fact is not needed for this request.
	Query string `json:"query,omitempty"`
	// Answer is the number and names of objects, or the value.
	Answer string `json:"answer,omitempty"`
	Live   bool   `json:"live,omitempty"`
	// Needs is why the fact is undefined, Error why it was not answered.
	Needs *Needs `json:"needs,omitempty"`
	Error string `json:"error,omitempty"`
}

// Rule is a deny, warn, patch or outcome rule.
type Rule struct {
	Rule   string `json:"rule"`
	Place  string `json:"place"`
	Title  string `json:"title,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Says are the values of the rule. If there is none, Needs is the expression at which it stopped.
	Says  []string `json:"says,omitempty"`
	Needs *Needs   `json:"needs,omitempty"`

	changes []string // Says in brief, of a patch rule
}

// Needs is an expression that does not hold.
type Needs struct {
	// Place is file:line:column. For a library, the file begins with the library's name.
	Place      string `json:"place"`
	Expression string `json:"expression"`
	// Missing is the undefined part of the expression; empty if none is.
	Missing string           `json:"missing,omitempty"`
	Kind    engine.UnmetKind `json:"kind"`
	With    []With           `json:"with,omitempty"`
	// Others is the number of other values for which the expression did not hold either.
	Others  int    `json:"others,omitempty"`
	Because *Needs `json:"because,omitempty"`

	passed int
}

// With is a variable or reference in the expression and its value.
type With struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Verdicts besides those of decision records.
const (
	// NotAsked means that the policy is not evaluated for the request.
	NotAsked = "not_asked"
	// Unknown means that the user may not read what the policy reads.
	Unknown = "unknown"
)

// Explain explains every policy that has rules for the endpoint. On an error nothing is explained.
func (x *Explainer) Explain(ctx context.Context, q *decision.Question) ([]*Policy, error) {
	source := newCachingSource(x.Facts)
	decided, err := decision.NewDecider(x.Set, source, nil, nil).Decide(ctx, q)
	if err != nil {
		return nil, err
	}
	reader := source.For(q.Review.Request, q.Review.Subject())
	var all []*Policy
	for _, p := range x.Set.Policies() {
		if !q.Speaks(p) || x.Policy != "" && p.Name() != x.Policy {
			continue
		}
		e, err := x.explain(ctx, p, decided, reader)
		if err != nil {
			return nil, fmt.Errorf("explaining policy %s: %w", p.Name(), err)
		}
		all = append(all, e)
	}
	return all, nil
}

func (x *Explainer) explain(ctx context.Context, p *catalog.Policy, decided *decision.Decision, reader engine.Reader) (*Policy, error) {
	review := decided.Review
	e := &Policy{Policy: p.Name(), Endpoint: decided.Endpoint, Verdict: NotAsked, OnError: p.OnError, Match: p.Meeting(ctx, review.Request, reader)}
	if i := slices.IndexFunc(x.States, func(s catalog.State) bool { return s.Name == p.Name() }); i >= 0 && x.States[i].Err != nil {
		e.Broken, e.LastGood = x.States[i].Err.Error(), x.States[i].LastGood
	} else if err := p.Broken(); err != nil {
		e.Broken = err.Error()
	}
	if said := record.PolicyOf(decided, p.Name()); said != nil {
		e.Verdict, e.Cause, e.Error = said.Verdict, said.Cause, said.Error
		e.Override = overrideOf(decided, said)
	}
	e.markUnknown(x, e.Match.Unread)
	if e.Verdict == NotAsked || p.Broken() != nil || e.Match.Unread != nil {
		e.summarize(e.summary())
		return e, nil
	}
	traced, err := p.Explain(ctx, engine.Input{Request: review.Document, Now: decided.At}, reader, decided.Endpoint == decision.Mutating)
	if err != nil {
		return nil, err
	}
	e.add(traced)
	for _, f := range traced.Facts {
		e.markUnknown(x, f.Err)
	}
	e.summarize(e.summary())
	return e, nil
}

// markUnknown sets Verdict to Unknown if the user may not read something that Sallyport can.
func (e *Policy) markUnknown(x *Explainer, err error) {
	if x.Own && apierrors.IsForbidden(err) {
		e.Verdict, e.Error = Unknown, err.Error()
	}
}

// LeftOut sets why the API server does not call the policy's webhook. The summary keeps what the policy would decide.
func (e *Policy) LeftOut(why string) {
	e.Unasked = why
	if e.inSummary = e.Verdict != NotAsked; e.inSummary {
		e.summarize(fmt.Sprintf("not evaluated: %s (if it were: %s)", why, e.headline))
	}
	e.Verdict = NotAsked
}

// Headline returns the summary without the policy's name.
func (e *Policy) Headline() string { return e.headline }

// Untold returns why the API server does not call the policy's webhook, unless the summary contains it; empty if it does call it.
func (e *Policy) Untold() string {
	if e.inSummary {
		return ""
	}
	return e.Unasked
}

// overrideOf returns the outcome of the object's override.
func overrideOf(decided *decision.Decision, said *record.PolicyDecision) string {
	refuses := said.Verdict == "denied" || said.Verdict == "error_denied"
	ignored := decided.IgnoredOverride()
	switch o := said.Override; {
	case o != nil:
		return fmt.Sprintf("is in effect: %s overrides the policy until %s, reason: %s", o.By, o.Until, o.Reason)
	case refuses && ignored != "":
		return "is ignored: " + ignored
	}
	text := decided.Review.Document.Get("object").Get("metadata").Get("annotations").Get(v1alpha1.AnnotationOverride).Text()
	if name, _, _ := strings.Cut(text, ";"); strings.TrimSpace(name) == said.Policy && !refuses {
		return "is not needed: the policy allows the request"
	}
	return ""
}

// add adds the engine's explanation as text.
func (e *Policy) add(x *engine.Explanation) {
	for _, f := range x.Facts {
		e.Facts = append(e.Facts, e.fact(&f))
	}
	e.Input = e.needs(x.Invalid)
	for _, r := range x.Rules {
		rule := Rule{Rule: r.Name, Place: e.place(r.Place), Title: r.Title, Reason: r.Reason, Needs: e.needs(r.Unmet)}
		for _, v := range r.Values {
			rule.Says = append(rule.Says, saidBy(r.Name, v))
			if r.Name == "patch" {
				rule.changes = append(rule.changes, changedBy(v))
			}
		}
		e.Rules = append(e.Rules, rule)
	}
}

func saidBy(rule string, v engine.Value) string {
	switch {
	case rule == "deny":
		denial := engine.Denial{Message: v.Get("message").Text(), Cause: v.Get("cause").Text(), Remedy: v.Get("remedy").Text()}
		return denial.WithRemedy()
	case rule == "warn":
		return v.Text()
	case rule == "patch" && !v.Get("merge").IsObject() && !v.Get("value").IsNull():
		return changedBy(v) + ": " + brief(v.Get("value"))
	case rule == "patch":
		return changedBy(v)
	}
	return brief(v)
}

// changedBy returns what a patch changes.
func changedBy(v engine.Value) string {
	if merge := v.Get("merge"); merge.IsObject() {
		return "merge " + brief(merge)
	}
	return v.Get("op").Text() + " " + v.Get("path").Text()
}

func (e *Policy) fact(f *engine.ExplainedFact) Fact {
	fact := Fact{Name: f.Name, Place: e.place(f.Place), Needs: e.needs(f.Undefined)}
	if f.Query != nil {
		fact.Query = f.Query.String()
	}
	switch {
	case f.Err != nil:
		fact.Error = f.Err.Error()
	case f.Query != nil:
		fact.Answer, fact.Live = answerText(f.Query, f.Answer.Value), f.Answer.Live
	}
	return fact
}

func (e *Policy) needs(u *engine.Unmet) *Needs {
	if u == nil {
		return nil
	}
	n := &Needs{
		Place: e.place(u.Place), Expression: u.Text, Missing: u.Part, Kind: u.Kind, Others: u.Others, Because: e.needs(u.Because), passed: u.Passed,
	}
	for _, v := range u.Values {
		text := nothing
		if v.Defined {
			text = brief(v.Value)
		}
		n.With = append(n.With, With{Name: v.Name, Value: text})
	}
	return n
}

// place returns file:line:column. Modules are named after their RegoPolicy, which is omitted for the policy's own.
func (e *Policy) place(p engine.Place) string {
	if p.Row == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", strings.TrimPrefix(p.File, e.Policy+"/"), p.Row, p.Col)
}
