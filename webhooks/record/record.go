package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Version is the version of written records. Adding fields does not change it.
const Version = 1

// Record is a decision with all its input, so that the same policies give the same decision when it is replayed. It omits the data
// of Secrets and the last-applied annotation.
type Record struct {
	// Version is [Version]. It is the first field of every record, and of no other line of a log.
	Version  int       `json:"decisionRecord"`
	ID       types.UID `json:"id"`
	Time     string    `json:"time"`
	Endpoint string    `json:"endpoint"`
	// Only is the name of the only policy that was evaluated.
	Only string `json:"only,omitempty"`
	// GateOpen is set if the gate was open for the request.
	GateOpen *decision.Opening `json:"gateOpen,omitempty"`
	Allowed  bool              `json:"allowed"`
	DryRun   bool              `json:"dryRun,omitempty"`
	// Verified reports whether the request, with its user, is from a verified API server or from Sallyport. Any client that reaches
	// the port can forge other requests.
	Verified bool `json:"verified"`
	// Request is the AdmissionRequest as policies saw it. If TooLarge is set, large parts are replaced by [Omitted], and the
	// decision cannot be replayed.
	Request  any              `json:"request"`
	TooLarge bool             `json:"tooLarge,omitempty"`
	Policies []PolicyDecision `json:"policies"`
	// Facts are the answers to queries that were not of policies: the namespace if policies select by its labels, and those for
	// checking an override.
	Facts    map[string]Fact `json:"facts,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
}

// PolicyDecision is the result of one policy.
type PolicyDecision struct {
	Policy   string `json:"policy"`
	Revision string `json:"revision"`
	PolicyResult
	Confirmation engine.Confirmation `json:"confirmation,omitempty"`
	// Override is set if the request was admitted in spite of Denials or Error.
	Override *decision.Override `json:"override,omitempty"`
	// Outcome is the result that a reconciler acts on.
	Outcome      any             `json:"outcome,omitempty"`
	Facts        map[string]Fact `json:"facts,omitempty"`
	Milliseconds float64         `json:"milliseconds"`
}

// PolicyResult is the result of a policy and its effect.
type PolicyResult struct {
	Mode v1alpha1.PolicyMode `json:"mode"`
	// Verdict is allowed, denied, warned, audited, overridden, error_denied or error_allowed.
	Verdict  string          `json:"verdict"`
	Denials  []engine.Denial `json:"denials,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	Patches  []engine.Patch  `json:"patches,omitempty"`
	// Cause and Error are set if the policy could not be evaluated.
	Cause engine.Cause `json:"cause,omitempty"`
	Error string       `json:"error,omitempty"`
}

// Fact is a fact and the source of its value.
type Fact struct {
	Query *engine.Query `json:"query,omitempty"`
	// Document is the digest of the document that was test-run.
	Document        string `json:"document,omitempty"`
	Live            bool   `json:"live,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Part lists the fields that the value has of each object of a list; it is nil if the objects are complete.
	Part  *engine.Part `json:"part,omitempty"`
	Value any          `json:"value"`
	// TooLarge reports whether the value was too large, and is omitted.
	TooLarge bool `json:"tooLarge,omitempty"`
}

// Question returns the recorded question about review, which [Record.Review] returns. The caller sets its Facts.
func (r *Record) Question(review *decision.Review) (*decision.Question, error) {
	at, err := time.Parse(engine.TimeFormat, r.Time)
	if err != nil {
		return nil, fmt.Errorf("time: %w", err)
	}
	if r.Endpoint != decision.Validating && r.Endpoint != decision.Mutating && r.Endpoint != decision.Arbitrating {
		return nil, fmt.Errorf("endpoint: %q is not %s, %s or %s", r.Endpoint, decision.Validating, decision.Mutating, decision.Arbitrating)
	}
	return &decision.Question{Endpoint: r.Endpoint, Review: review, Only: r.Only, Open: r.GateOpen, At: at}, nil
}

// Review returns the request of a record.
func (r *Record) Review() (*decision.Review, error) {
	members, ok := r.Request.(map[string]any)
	if !ok {
		return nil, errors.New("request: not an object")
	}
	document, err := engine.ValueOf(members)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	request, bare := &admissionv1.AdmissionRequest{}, maps.Clone(members)
	objects := map[string]*runtime.RawExtension{"object": &request.Object, "oldObject": &request.OldObject, "options": &request.Options}
	maps.DeleteFunc(bare, func(name string, _ any) bool { return objects[name] != nil })
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(bare, request); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	for name, is := range objects {
		if object, ok := members[name].(map[string]any); ok {
			is.Object = &unstructured.Unstructured{Object: object}
		}
	}
	return &decision.Review{Request: request, Document: document, Verified: r.Verified}, nil
}

// recordOf returns the record of a decision and the response made from it.
func recordOf(d *decision.Decision, response *admissionv1.AdmissionResponse) Record {
	record := Record{
		Version: Version, ID: d.ID(), Time: d.At.UTC().Format(engine.TimeFormat), Endpoint: d.Endpoint, Only: d.Only, GateOpen: d.Open, Allowed: response.Allowed,
		DryRun: d.Review.DryRun(), Verified: d.Review.Verified, Request: requestOf(d.Review), TooLarge: large(d.Review), Warnings: response.Warnings,
		Facts: factsOf(d.Queried()), Policies: PoliciesOf(d),
	}
	for i, v := range d.Verdicts() {
		record.Policies[i].Facts = factsOf(v.Facts())
	}
	return record
}

// PoliciesOf returns the result of each policy, without its facts.
func PoliciesOf(d *decision.Decision) []PolicyDecision {
	verdicts := d.Verdicts()
	all := make([]PolicyDecision, len(verdicts))
	for i := range verdicts {
		all[i] = policyOf(d, &verdicts[i])
	}
	return all
}

// PolicyOf returns the result of the policy of that name; nil if it was not evaluated.
func PolicyOf(d *decision.Decision, name string) *PolicyDecision {
	for _, v := range d.Verdicts() {
		if v.Policy.Name() == name {
			result := policyOf(d, &v)
			return &result
		}
	}
	return nil
}

func policyOf(d *decision.Decision, v *decision.Verdict) PolicyDecision {
	p := PolicyDecision{
		Policy: v.Policy.Name(), Revision: v.Policy.Revision(), PolicyResult: PolicyResult{Mode: v.Mode, Verdict: v.Result()},
		Override: v.Override, Milliseconds: v.Took.Seconds() * 1000,
	}
	if v.Err != nil {
		p.Cause, p.Error = v.Err.Cause, v.Err.Error()
		return p
	}
	p.Denials, p.Warnings, p.Patches, p.Confirmation = v.Decision.Denials, v.Decision.Warnings, v.Decision.Patches, v.Decision.Confirmation
	if d.Endpoint == decision.Arbitrating {
		p.Outcome, _ = v.Decision.Outcome.Decode() // it was made from JSON
	}
	return p
}

func factsOf(facts map[string]engine.Fact) map[string]Fact {
	records := make(map[string]Fact, len(facts))
	for name, f := range facts {
		value, tooLarge := factValue(f.Answer.Value)
		records[name] = Fact{
			Query: f.Query, Live: f.Answer.Live, ResourceVersion: f.Answer.ResourceVersion, Part: f.Answer.Part, Value: value,
			TooLarge: tooLarge, Document: DigestOf(f.Query),
		}
	}
	return records
}

// DigestOf returns a digest that distinguishes the documents of test runs, as far as records keep them; "" for other queries.
func DigestOf(q *engine.Query) string {
	if q == nil || !q.TestRun {
		return ""
	}
	text, err := json.Marshal(scrubbed(q.Document))
	if err != nil {
		panic(err) // it was made from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}
