package webhooks

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// FactSource gives the reader that answers the facts of one request.
type FactSource interface {
	For(request *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader
}

// Gate asks the policies. It is safe for use by any number of requests at once.
type Gate struct {
	facts    FactSource
	recorder *Recorder
	now      func() time.Time
	set      atomic.Pointer[catalog.Set]
}

// NewGate makes a gate over a set of policies, or over none yet: until the first Swap nothing is judged then, and nothing
// admitted but what can repair policies. Every decision is given to the recorder.
func NewGate(set *catalog.Set, source FactSource, recorder *Recorder, now func() time.Time) *Gate {
	g := &Gate{facts: source, recorder: recorder, now: now}
	g.set.Store(set)
	return g
}

// Swap has all requests from here on judged by another set. One that is being judged keeps the set that it began with.
func (g *Gate) Swap(set *catalog.Set) { g.set.Store(set) }

// verdict is what one policy says about a request. Exactly one of decision and err is set.
type verdict struct {
	policy   *catalog.Policy
	mode     v1alpha1.PolicyMode // that of the request's namespace
	decision *engine.Decision
	err      *engine.Error
	override *Override // by which the request passes all the same
	took     time.Duration
}

// judgement is a request with all that was said about it.
type judgement struct {
	id       types.UID
	endpoint string
	only     string // the one policy that was to be asked; "" if that was none alone
	at       time.Time
	review   *Review
	reader   engine.Reader
	set      *catalog.Set
	verdicts []verdict
	override overrideUse
	asked    map[string]engine.Fact // beside what the policies ask
}

// The names of the endpoints in metrics and decision records.
const (
	validating = "validate"
	mutating   = "mutate"
)

// errNoSet means that nothing can be judged yet.
var errNoSet = errors.New("the policies are not loaded yet")

// Validate asks every policy that the request meets whether it is admitted. It gives nil as long as there is no set.
func (g *Gate) Validate(ctx context.Context, review *Review) *admissionv1.AdmissionResponse {
	return g.validate(ctx, review, "", speaksOnValidation)
}

// validate asks the policies that speak; only is the name of the one that does, or "" if it is not one alone.
func (g *Gate) validate(
	ctx context.Context, review *Review, only string, speaks func(*catalog.Policy) bool,
) *admissionv1.AdmissionResponse {
	reader := g.reader(review)
	j := g.judge(ctx, validating, review, reader, speaks, whetherAdmitted)
	if j == nil {
		return nil
	}
	j.only = only
	j.hear(ctx, reader, j.annotated)
	response := j.respond()
	g.recorder.record(j, response)
	return response
}

// Mutate asks every policy that the request meets what to change in the object. It gives nil as long as there is no set.
//
// What keeps a request out here is that a policy failed, and no override helps: an object without what the policy would have
// put there, such as who asked for it, is not what others take it for.
func (g *Gate) Mutate(ctx context.Context, review *Review) *admissionv1.AdmissionResponse {
	return g.mutate(ctx, review, "", speaksOnMutation)
}

func (g *Gate) mutate(
	ctx context.Context, review *Review, only string, speaks func(*catalog.Policy) bool,
) *admissionv1.AdmissionResponse {
	j := g.judge(ctx, mutating, review, g.reader(review), speaks, whatToChange)
	if j == nil {
		return nil
	}
	j.only = only
	patch := j.patch()
	j.conceal() // a patch that does not apply, too
	response := j.respond()
	if response.Allowed && len(patch) > 0 {
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &kind
	}
	g.recorder.record(j, response)
	return response
}

func (g *Gate) reader(review *Review) engine.Reader {
	return g.facts.For(review.Request, review.Subject())
}

func speaksOnValidation(p *catalog.Policy) bool { return p.Validates() }
func speaksOnMutation(p *catalog.Policy) bool   { return p.Mutates() }

// question is what policies are asked.
type question struct {
	ask func(*engine.Policy, context.Context, engine.Input, engine.Reader) (*engine.Decision, error)
	// recall, if there is one, gives the answer at once if it is known.
	recall func(*engine.Policy, context.Context, *engine.Input, engine.Reader) *engine.Decision
}

var (
	whetherAdmitted = question{ask: (*engine.Policy).Decide, recall: (*engine.Policy).FromCache}
	whatToChange    = question{ask: (*engine.Policy).Patch}
)

// judge puts the question to the policies, each for itself: a slow or broken one costs the others nothing. All are of the one
// set that there is when it begins; nil if there is none.
func (g *Gate) judge(
	ctx context.Context, endpoint string, review *Review, reader engine.Reader,
	speaks func(*catalog.Policy) bool, q question,
) *judgement {
	set := g.set.Load()
	if set == nil {
		if !catalog.Repairs(review.Request) {
			return nil
		}
		set = &catalog.Set{}
	}
	j := &judgement{id: uuid.NewUUID(), endpoint: endpoint, at: g.now(), review: review, reader: reader, set: set}
	in := engine.Input{Request: review.Document, Now: j.at, VerdictOnly: endpoint != arbitrating}
	if g.recorder != nil { // see Rejudge
		in.Checked = g.recorder.metrics.checked
	}
	var selected []catalog.Selected
	for _, s := range set.Select(ctx, review.Request, j.noting(reader)) {
		if speaks(s.Policy) {
			selected = append(selected, s)
		}
	}
	j.verdicts = make([]verdict, len(selected))
	var open []func()
	for i, s := range selected {
		if rest := j.verdicts[i].begin(ctx, s, q, in, reader); rest != nil {
			open = append(open, rest)
		}
	}
	var all sync.WaitGroup
	for i, rest := range open {
		if i < len(open)-1 {
			all.Go(rest)
		} else { // this goroutine would only wait
			rest()
		}
	}
	all.Wait()
	j.conceal()
	return j
}

// begin fills in the verdict of a policy that knows it at once, and gives the rest of the work for one that does not.
func (v *verdict) begin(ctx context.Context, s catalog.Selected, q question, in engine.Input, reader engine.Reader) (rest func()) {
	start := time.Now()
	*v = verdict{policy: s.Policy, mode: s.Mode}
	if s.Err == nil && q.recall != nil {
		if v.decision = q.recall(s.Policy.Policy, ctx, &in, reader); v.decision != nil {
			v.took = time.Since(start)
			return nil
		}
	}
	return func() {
		var err error
		if s.Err != nil {
			err = notAsked(s.Err)
		} else {
			v.decision, err = q.ask(s.Policy.Policy, ctx, in, reader)
		}
		if err != nil {
			v.fail(err)
		}
		v.took = time.Since(start)
	}
}

// notAsked is the error of a policy that could not be asked: it is broken and says so, or its match could not be read.
func notAsked(err error) error {
	var known *engine.Error
	if errors.As(err, &known) {
		return known
	}
	return &engine.Error{Cause: engine.FactUnavailable, Err: err}
}

func (v *verdict) fail(err error) {
	v.decision = nil
	if !errors.As(err, &v.err) {
		v.err = &engine.Error{Cause: engine.EvaluationFailed, Err: err}
	}
}

// refuses tells whether the verdict keeps the request out. Warn and Audit mode govern errors too: a policy that is being
// tried out must not refuse because it is broken.
func (v *verdict) refuses() bool { return v.mode == v1alpha1.ModeEnforce && v.objects() }

// lets tells whether nothing but the mode lets the request pass.
func (v *verdict) lets() bool { return v.mode != v1alpha1.ModeEnforce && v.objects() }

// objects tells whether the policy is against the request, and no override helps.
func (v *verdict) objects() bool {
	if v.override != nil {
		return false
	}
	if v.err != nil {
		return v.policy.OnError == v1alpha1.OnErrorDeny
	}
	return len(v.decision.Denials) > 0
}
