package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/record"
)

// Replayer evaluates recorded decisions again. It is safe for concurrent use.
type Replayer struct {
	set *catalog.Set
	// readSecrets are the policies that name a field of Secrets, remembering those that name the last-applied annotation: records
	// have neither.
	readSecrets, readLastApplied map[string]bool
	portion                      Portion
	baseline                     *Replayer // nil to compare with the records
}

// New returns a replayer. The policies should have long timeouts: the speed of this machine must not affect results.
func New(set *catalog.Set) *Replayer {
	r := &Replayer{set: set, readSecrets: map[string]bool{}, readLastApplied: map[string]bool{}}
	for _, p := range set.Policies() {
		if p.Broken() != nil {
			continue
		}
		r.readSecrets[p.Name()] = slices.ContainsFunc(secretFields, p.Mentions)
		r.readLastApplied[p.Name()] = p.Mentions(lastApplied)
	}
	return r
}

// Result is the result of one line with a record.
type Result struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// Problem is why the line cannot be replayed; Cut reports whether it is an incomplete last line.
	Problem string `json:"problem,omitempty"`
	Cut     bool   `json:"cut,omitempty"`
	*Decision
}

// Decision is a recorded decision and its differences.
type Decision struct {
	ID          string                `json:"id"`
	Time        string                `json:"time"`
	Endpoint    string                `json:"endpoint"`
	DryRun      bool                  `json:"dryRun,omitempty"`
	User        string                `json:"user"`
	Operation   admissionv1.Operation `json:"operation"`
	Kind        string                `json:"kind"`
	Resource    string                `json:"resource"`
	Subresource string                `json:"subresource,omitempty"`
	Namespace   string                `json:"namespace,omitempty"`
	Name        string                `json:"name,omitempty"`

	Was   Verdict `json:"was"`
	Would Verdict `json:"would"`
	// Changes are the policies with a different result, Unknown those whose result is unknown; by name.
	Changes []Change  `json:"changes,omitempty"`
	Unknown []Unknown `json:"undecided,omitempty"`
}

// Flips reports whether the decision would be different: its result, reasons or patches.
func (d *Decision) Flips() bool { return d != nil && len(d.Changes) > 0 }

// FlipsVerdict reports whether an admitted request would be denied, or the other way round.
func (d *Decision) FlipsVerdict() bool {
	return d != nil && d.Would != Undecided && d.Was != d.Would && slices.ContainsFunc(d.Changes, func(c Change) bool {
		return c.Was.denies() != c.Would.denies()
	})
}

// job is a line to replay. The result of a line without a record is nil.
type job struct {
	line
	file   string
	result chan *Result
}

// Replay replays all decisions of the inputs and calls each, in their order, for decisions that would be different or unknown, and
// lines that cannot be read. It keeps in memory a few times as many lines as there are processors, and together no more bytes than
// the longest line may have. The error is that of each, or of the context.
func (r *Replayer) Replay(ctx context.Context, inputs []Input, each func(*Result) error) (*Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	workers := runtime.GOMAXPROCS(0)
	work, inOrder := make(chan *job), make(chan *job, 4*workers)
	most := 0
	for i := range inputs {
		most = max(most, inputs[i].longest())
	}
	held := semaphore.NewWeighted(int64(most)) // bytes of lines
	for range workers {
		go func() {
			for j := range work {
				result, bytes := r.line(ctx, j), len(j.text)
				j.text = nil
				held.Release(int64(bytes))
				j.result <- result
			}
		}()
	}
	go func() {
		defer close(inOrder)
		defer close(work)
		feed(ctx, inputs, held, work, inOrder)
	}()
	count := newCounter()
	for j := range inOrder {
		result := <-j.result
		if count.add(result); result == nil || ctx.Err() != nil || result.Problem == "" && !result.Flips() && len(result.Unknown) == 0 {
			continue
		}
		if err := each(result); err != nil {
			cancel(err)
		}
	}
	err := context.Cause(ctx)
	cancel(nil)
	return count.summary(), err
}

// feed sends every line to the workers, and keeps their order.
func feed(ctx context.Context, inputs []Input, held *semaphore.Weighted, work, inOrder chan<- *job) {
	for i := range inputs {
		for l := range inputs[i].lines {
			if held.Acquire(ctx, int64(len(l.text))) != nil {
				return
			}
			j := &job{line: l, file: inputs[i].Name, result: make(chan *Result, 1)}
			inOrder <- j
			work <- j
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// line replays one line.
func (r *Replayer) line(ctx context.Context, j *job) *Result {
	result := &Result{File: j.file, Line: j.number}
	recorded, err := j.recorded()
	if err == nil && (recorded == nil || !r.portion.includes(recorded)) {
		return nil
	}
	if err == nil {
		if result.Decision, err = r.decision(ctx, recorded); result.Decision == nil && err == nil {
			return nil
		}
	}
	if err != nil {
		result.Problem, result.Cut = err.Error(), err == errCut //nolint:errorlint // it is never wrapped
	}
	return result
}

func (r *Replayer) decision(ctx context.Context, recorded *record.Record) (*Decision, error) {
	review, err := recorded.Review()
	if err != nil {
		return nil, err
	}
	if recorded.TooLarge {
		return unreplayable(recorded, review, r.portion.Policy), nil
	}
	q, err := recorded.Question(review)
	if err != nil {
		return nil, err
	}
	would, unknown, err := r.reevaluate(ctx, recorded, *q)
	if err != nil {
		return nil, err
	}
	d, was := describe(recorded, review), recorded
	switch {
	case r.baseline != nil:
		var missing map[string]Unknown
		if was, missing, err = r.baseline.reevaluate(ctx, recorded, *q); err != nil {
			return nil, err
		}
		d.Was = verdictOf(r.portion.reduce(was), missing)
		maps.Copy(unknown, missing)
	case r.portion.reduce(recorded).Allowed:
		d.Was = Admitted
	default:
		d.Was = Denied
	}
	was, would = r.portion.reduce(was), r.portion.reduce(would)
	if r.portion.Policy != "" && len(was.Policies)+len(would.Policies) == 0 {
		return nil, nil
	}
	d.compare(was, would, unknown)
	return d, nil
}

// unreplayable returns a decision whose request is not in the record, so that the matching policies are unknown, too.
func unreplayable(recorded *record.Record, review *decision.Review, only string) *Decision {
	d := describe(recorded, review)
	d.Would = Undecided
	for i := range recorded.Policies {
		if only != "" && recorded.Policies[i].Policy != only {
			continue
		}
		d.Unknown = append(d.Unknown, Unknown{Policy: recorded.Policies[i].Policy, Cause: TooLarge, Why: "the request was too large to be recorded"})
	}
	if len(d.Unknown) == 0 {
		d.Unknown = []Unknown{{Policy: cmp.Or(only, "every policy"), Cause: TooLarge, Why: "the request was too large to be recorded"}}
	}
	return d
}

// unknown returns the policies that could not be evaluated.
func (r *Replayer) unknown(would, recorded *record.Record, readers map[string]*reader) map[string]Unknown {
	all := map[string]Unknown{}
	for i := range would.Policies {
		p := &would.Policies[i]
		u := Unknown{Policy: p.Policy}
		asked := readers[p.Policy]
		switch {
		case p.Cause == engine.FactUnavailable:
			u.Cause, u.Why = FactNotRecorded, p.Error
			if asked == nil || len(asked.missing) == 0 {
				asked = readers[""]
			}
			if asked != nil && len(asked.missing) > 0 {
				u.Fact = asked.missing[0].Fact
			}
		case isTransient(p.Cause):
			u.Cause, u.Why = FailedNow, p.Error
		case readers[""].overrideUnknown(p.Policy):
			u.Cause, u.Fact, u.Why = FactNotRecorded, overrideFact, "the request has an override, but the record does not say whether the requester may use it"
		case r.readLastApplied[p.Policy]:
			u.Cause, u.Why = LeftOut, fmt.Sprintf("the policy reads the annotation %s, which records leave out", lastApplied)
		case r.readSecrets[p.Policy] && (holdsSecret(recorded.Request) || asked != nil && asked.wasGivenSecrets()):
			u.Cause, u.Why = LeftOut, "the policy reads the data of a Secret, which records leave out"
		default:
			continue
		}
		all[p.Policy] = u
	}
	return all
}

// overrideFact is the fact whether the requester may override a policy.
const overrideFact = "override"

// overrideUnknown reports whether that fact was not recorded for a policy.
func (r *reader) overrideUnknown(policy string) bool {
	return r != nil && slices.ContainsFunc(r.missing, func(q engine.Query) bool {
		return q.Fact == overrideFact && q.Access != nil && q.Access.Name == policy
	})
}

func (r *reader) wasGivenSecrets() bool {
	return slices.ContainsFunc(r.given, func(a *answer) bool { return holdsSecret(a.content) })
}

// describe returns the user, action and object of a decision.
func describe(recorded *record.Record, review *decision.Review) *Decision {
	request := review.Request
	d := &Decision{
		ID: string(recorded.ID), Time: recorded.Time, Endpoint: recorded.Endpoint, DryRun: recorded.DryRun,
		User: request.UserInfo.Username, Operation: request.Operation, Kind: request.Kind.Kind, Subresource: request.SubResource,
		Resource:  schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}.String(),
		Namespace: request.Namespace, Name: review.Subject().Name, Was: Denied,
	}
	if recorded.Allowed {
		d.Was = Admitted
	}
	if d.Name == "" {
		content, _ := recorded.Request.(map[string]any)
		d.Name, _, _ = unstructured.NestedString(content, "object", "metadata", "generateName")
	}
	return d
}
