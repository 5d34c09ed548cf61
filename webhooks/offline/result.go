package offline

import (
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/explain"
)

// Verdict is what comes of a request.
type Verdict string

// The verdicts.
const (
	Admitted Verdict = "admitted"
	Denied   Verdict = "denied"
	// Undecided: a policy could not judge, so that a cluster may say either.
	Undecided Verdict = "undecided"
)

// Report is everything that was reviewed. Its JSON is a stable format: fields are added, never changed.
type Report struct {
	Results   []*Result `json:"results"`
	Admitted  int       `json:"admitted"`
	Denied    int       `json:"denied"`
	Undecided int       `json:"undecided"`
	// Warnings are about the state, not about a request.
	Warnings []string `json:"warnings,omitempty"`
	// Notes say what none of the verdicts rests on.
	Notes []string `json:"notes,omitempty"`
}

func (r *Report) add(result *Result) {
	r.Results = append(r.Results, result)
	switch result.Verdict {
	case Admitted:
		r.Admitted++
	case Denied:
		r.Denied++
	default:
		r.Undecided++
	}
}

// Result is what a cluster would answer to one request.
type Result struct {
	File        string                    `json:"file,omitempty"`
	Line        int                       `json:"line,omitempty"`
	Operation   admissionv1.Operation     `json:"operation"`
	Subresource string                    `json:"subresource,omitempty"`
	APIVersion  string                    `json:"apiVersion"`
	Kind        string                    `json:"kind"`
	Resource    string                    `json:"resource"` // with its group, as in "virtualmachines.sallyport.dev"
	Namespace   string                    `json:"namespace,omitempty"`
	Name        string                    `json:"name"`
	User        authenticationv1.UserInfo `json:"user"`
	Verdict     Verdict                   `json:"verdict"`
	// Status is what the client gets in place of the object, unless the request is admitted.
	Status *metav1.Status `json:"status,omitempty"`
	// Fields are those that the schema has something against, with the line that each was read from.
	Fields []FieldLine `json:"fields,omitempty"`
	// Warnings that the client gets, in any case.
	Warnings []string `json:"warnings,omitempty"`
	// Changes are what the cluster makes of the object that was sent, without what it sets in every object.
	Changes []Change `json:"changes,omitempty"`
	// Policies are those that were asked, and what each said.
	Policies []PolicyVerdict `json:"policies,omitempty"`
	// Explanations tell why each policy says what it says, if that is asked for: of those that change the object and then of those
	// that judge it. Without any the request did not get that far.
	Explanations []*explain.Policy `json:"explanations,omitempty"`
	// Notes say what the verdict does not rest on.
	Notes []Note `json:"notes,omitempty"`
	// Object is what would be stored, or sent to the policies if the request is not admitted; absent after a deletion.
	Object map[string]any `json:"object,omitempty"`
}

// Note says what a verdict does not rest on. In JSON it is its text.
type Note struct {
	About NoteKind
	Text  string
}

// NoteKind is what a note is about.
type NoteKind int

// The kinds of notes.
const (
	// AboutRequest is a note that is none of the others.
	AboutRequest NoteKind = iota
	// AboutWebhook says why the API server does not ask a webhook.
	AboutWebhook
	// AboutPatches says that the object is judged without what policies would have changed in it.
	AboutPatches
)

// MarshalText gives the text.
func (n Note) MarshalText() ([]byte, error) { return []byte(n.Text), nil }

// UnmarshalText takes the text for a note about the request.
func (n *Note) UnmarshalText(text []byte) error {
	*n = Note{Text: string(text)}
	return nil
}

// PolicyVerdict is what one policy said.
type PolicyVerdict struct {
	Policy string `json:"policy"`
	// Endpoint is mutate or validate.
	Endpoint string `json:"endpoint"`
	webhooks.PolicySaid
}

// verdictsOf is what the policies said.
func verdictsOf(d *webhooks.Decision) (all []PolicyVerdict) {
	for _, p := range d.Said() {
		all = append(all, PolicyVerdict{p.Policy, d.Endpoint, p.PolicySaid})
	}
	return all
}

// decides tells whether what the policy says makes a verdict of the request.
func (p *PolicyVerdict) decides() bool { return p.Verdict == "denied" }

// unknown tells whether the policy could have said something else in a cluster, or cannot judge such a request at all.
func (p *PolicyVerdict) unknown() bool {
	if p.Mode != v1alpha1.ModeEnforce {
		return false
	}
	if p.Verdict == "error_denied" {
		return true
	}
	// With onError: Allow a cluster admits what its policy does not understand; here it is only that something was not known.
	return p.Verdict == "error_allowed" && p.Cause != engine.InputNotUnderstood && p.Cause != engine.EvaluationFailed &&
		p.Cause != engine.ContractViolated
}
