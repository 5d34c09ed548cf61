package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// The endpoints.
const (
	Validating = "validate"
	Mutating   = "mutate"
)

// Question is what policies are asked for an explanation.
type Question struct {
	// Set are the policies that decide, States what became of each RegoPolicy; without them only a set is known.
	Set    *catalog.Set
	States []catalog.State
	// Facts answer what they ask.
	Facts webhooks.FactSource
	// Now is the time of the request.
	Now time.Time
	// Policy is the only one that is explained; empty means all.
	Policy string
	// Own tells that the facts are answered with the rights of who asks. What they may not read Sallyport can: then the verdict is
	// not known.
	Own bool
	// Mutating asks what they would change in the object instead of what they have against it.
	Mutating bool
}

// Policy is what one policy has to do with a request. Its JSON is a stable format: fields are added, never changed.
type Policy struct {
	Policy   string `json:"policy"`
	Endpoint string `json:"endpoint"`
	// Summary is all in a line.
	Summary string `json:"summary"`
	// Verdict is not_asked or unknown, or as in decision records: allowed, denied, warned, audited, overridden, error_denied, error_allowed.
	Verdict string                     `json:"verdict"`
	OnError v1alpha1.PolicyErrorAction `json:"onError,omitempty"`
	// Broken is why the RegoPolicy as it is cannot decide. LastGood tells that its last good revision does instead.
	Broken   string `json:"broken,omitempty"`
	LastGood bool   `json:"lastGood,omitempty"`
	// Unasked is why the API server does not ask the policy, whatever it matches.
	Unasked string           `json:"unasked,omitempty"`
	Match   *catalog.Meeting `json:"match,omitempty"`
	// Override says what became of the override that the object carries; empty if there is none, or none was needed.
	Override string `json:"override,omitempty"`
	// Facts are all that the policy declares.
	Facts []Fact `json:"facts,omitempty"`
	// Input is where valid_input does not hold.
	Input *Needs `json:"input,omitempty"`
	Rules []Rule `json:"rules,omitempty"`
	// Cause and Error tell why the policy could not decide.
	Cause engine.Cause `json:"cause,omitempty"`
	Error string       `json:"error,omitempty"`
}

// Fact is a fact in brief.
type Fact struct {
	Name  string `json:"name"`
	Place string `json:"place,omitempty"`
	// Query is what was asked; empty if the fact was not wanted for this request.
	Query string `json:"query,omitempty"`
	// Answer is how many objects there are and what they are called, or the value.
	Answer string `json:"answer,omitempty"`
	Live   bool   `json:"live,omitempty"`
	// Needs is why it has no value, Error why it was not answered.
	Needs *Needs `json:"needs,omitempty"`
	Error string `json:"error,omitempty"`
}

// Rule is a deny, warn, patch or outcome rule.
type Rule struct {
	Rule   string `json:"rule"`
	Place  string `json:"place"`
	Title  string `json:"title,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Says is what it said, once for each match. If there is nothing, Needs is where it stopped.
	Says  []string `json:"says,omitempty"`
	Needs *Needs   `json:"needs,omitempty"`
}

// Needs is an expression that does not hold.
type Needs struct {
	// Place is file:line:column. A file of a library has the library's name before it.
	Place      string `json:"place"`
	Expression string `json:"expression"`
	// Missing is the part of the expression that has no value; empty if it is not that.
	Missing string           `json:"missing,omitempty"`
	Kind    engine.UnmetKind `json:"kind"`
	With    []With           `json:"with,omitempty"`
	// Others is for how many other values it was asked, and was not so either.
	Others  int    `json:"others,omitempty"`
	Because *Needs `json:"because,omitempty"`

	passed int
}

// With is what an expression was asked with, as it is written.
type With struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Verdicts beside those of decision records.
const (
	// NotAsked is that of a policy that has no say in the request.
	NotAsked = "not_asked"
	// Unknown is that of a policy of which it is not known, because who asks may not read what the policy reads.
	Unknown = "unknown"
)

// patience is how long the record of one decision may take to be written to memory.
const patience = time.Minute

// Explain asks the policies. An error says that there is no explanation of any.
func (q *Question) Explain(ctx context.Context, review *webhooks.Review) ([]*Policy, error) {
	source := newRemembering(q.Facts)
	record, err := q.judge(ctx, review, source)
	if err != nil {
		return nil, err
	}
	reader := source.For(review.Request, review.Subject())
	var all []*Policy
	for _, p := range q.Set.Policies() {
		speaks := p.Validates()
		if q.Mutating {
			speaks = p.Mutates()
		}
		if !speaks || q.Policy != "" && p.Name() != q.Policy {
			continue
		}
		e, err := q.explain(ctx, p, review, record, reader)
		if err != nil {
			return nil, fmt.Errorf("explaining policy %s: %w", p.Name(), err)
		}
		all = append(all, e)
	}
	return all, nil
}

// judge has the gate judge the request, and reads what it has written down.
func (q *Question) judge(ctx context.Context, review *webhooks.Review, source webhooks.FactSource) (*webhooks.Record, error) {
	var text bytes.Buffer
	recorder := webhooks.NewRecorder(prometheus.NewRegistry(), &text, false)
	gate := webhooks.NewGate(q.Set, source, recorder, func() time.Time { return q.Now })
	if q.Mutating {
		gate.Mutate(ctx, review)
	} else {
		gate.Validate(ctx, review)
	}
	recorder.Close(patience)
	record := &webhooks.Record{}
	if err := json.Unmarshal(text.Bytes(), record); err != nil {
		return nil, fmt.Errorf("reading the decision: %w", err)
	}
	return record, nil
}

func (q *Question) endpoint() string {
	if q.Mutating {
		return Mutating
	}
	return Validating
}

func (q *Question) explain(
	ctx context.Context, p *catalog.Policy, review *webhooks.Review, record *webhooks.Record, reader engine.Reader,
) (*Policy, error) {
	e := &Policy{Policy: p.Name(), Endpoint: q.endpoint(), Verdict: NotAsked, OnError: p.OnError, Match: p.Meeting(ctx, review.Request, reader)}
	if i := slices.IndexFunc(q.States, func(s catalog.State) bool { return s.Name == p.Name() }); i >= 0 && q.States[i].Err != nil {
		e.Broken, e.LastGood = q.States[i].Err.Error(), q.States[i].LastGood
	} else if err := p.Broken(); err != nil {
		e.Broken = err.Error()
	}
	if i := slices.IndexFunc(record.Policies, func(d webhooks.PolicyDecision) bool { return d.Policy == p.Name() }); i >= 0 {
		d := &record.Policies[i]
		e.Verdict, e.Cause, e.Error = d.Verdict, d.Cause, d.Error
		e.Override = overrideOf(p.Name(), review, record, d)
	}
	e.forbidden(q, e.Match.Unread)
	if e.Verdict == NotAsked || p.Broken() != nil || e.Match.Unread != nil {
		e.summarize()
		return e, nil
	}
	ask := p.Explain
	if q.Mutating {
		ask = p.ExplainPatch
	}
	x, err := ask(ctx, engine.Input{Request: review.Document, Now: q.Now}, reader)
	if err != nil {
		return nil, err
	}
	e.take(x)
	for _, f := range x.Facts {
		e.forbidden(q, f.Err)
	}
	e.summarize()
	return e, nil
}

// forbidden has it that nothing is known where only who asks may not read something.
func (e *Policy) forbidden(q *Question, err error) {
	if q.Own && apierrors.IsForbidden(err) {
		e.Verdict, e.Error = Unknown, err.Error()
	}
}

// LeftOut says that the API server does not ask the policy about the request, whatever it matches. What it would say is kept.
func (e *Policy) LeftOut(why string) {
	e.Unasked = why
	if e.Verdict != NotAsked {
		e.Summary = fmt.Sprintf("%s: is not asked: %s (if it were: %s)", e.Policy, why, strings.TrimPrefix(e.Summary, e.Policy+": "))
	}
	e.Verdict = NotAsked
}

// overrideOf says what became of the override that the object carries.
func overrideOf(policy string, review *webhooks.Review, record *webhooks.Record, d *webhooks.PolicyDecision) string {
	const ignored = "annotation " + v1alpha1.AnnotationOverride
	if o := d.Override; o != nil {
		return fmt.Sprintf("it counts: %s passes until %s, because: %s", o.By, o.Until, o.Reason)
	}
	refuses := d.Verdict == "denied" || d.Verdict == "error_denied"
	for _, w := range record.Warnings {
		if rest, found := strings.CutPrefix(w, ignored); found && refuses {
			return strings.TrimSpace(rest)
		}
	}
	text := review.Document.Get("object").Get("metadata").Get("annotations").Get(v1alpha1.AnnotationOverride).Text()
	if name, _, _ := strings.Cut(text, ";"); strings.TrimSpace(name) == policy && !refuses {
		return "there is one for this policy, which is not needed: the policy does not refuse the request"
	}
	return ""
}

// take puts the engine's explanation into texts.
func (e *Policy) take(x *engine.Explanation) {
	for _, f := range x.Facts {
		e.Facts = append(e.Facts, e.fact(&f))
	}
	e.Input = e.needs(x.Invalid)
	for _, r := range x.Rules {
		rule := Rule{Rule: r.Name, Place: e.place(r.Place), Title: r.Title, Reason: r.Reason, Needs: e.needs(r.Unmet)}
		for _, v := range r.Values {
			rule.Says = append(rule.Says, saidBy(r.Name, v))
		}
		e.Rules = append(e.Rules, rule)
	}
}

func saidBy(rule string, v engine.Value) string {
	switch {
	case rule == "deny":
		return v.Get("message").Text()
	case rule == "warn":
		return v.Text()
	case rule == "patch" && v.Get("merge").IsObject():
		return "merge " + brief(v.Get("merge"))
	case rule == "patch" && !v.Get("value").IsNull():
		return fmt.Sprintf("%s %s: %s", v.Get("op").Text(), v.Get("path").Text(), brief(v.Get("value")))
	case rule == "patch":
		return fmt.Sprintf("%s %s", v.Get("op").Text(), v.Get("path").Text())
	}
	return brief(v)
}

func (e *Policy) fact(f *engine.ExplainedFact) Fact {
	fact := Fact{Name: f.Name, Place: e.place(f.Place), Needs: e.needs(f.Undefined)}
	if f.Query != nil {
		fact.Query = queryText(f.Query)
	}
	var mine *engine.Error
	switch {
	case errors.As(f.Err, &mine) && fact.Query == "":
		fact.Error = mine.Error()
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

// place is file:line:column. Modules are named after the RegoPolicy that they are of, which is left out of the policy's own.
func (e *Policy) place(p engine.Place) string {
	if p.Row == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", strings.TrimPrefix(p.File, e.Policy+"/"), p.Row, p.Col)
}
