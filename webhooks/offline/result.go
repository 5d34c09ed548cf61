package offline

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/explain"
	"sallyport.dev/sallyport/webhooks/record"
)

// Verdict is the result of a request.
type Verdict string

// Verdicts.
const (
	Admitted Verdict = "admitted"
	Denied   Verdict = "denied"
	// Undecided means that a policy could not be evaluated, so that a cluster may admit or deny the request.
	Undecided Verdict = "undecided"
)

// Report is the result of a review. Its JSON is a stable format: fields are added, never changed.
type Report struct {
	Results   []*Result `json:"results"`
	Admitted  int       `json:"admitted"`
	Denied    int       `json:"denied"`
	Undecided int       `json:"undecided"`
	// Warnings are about the state, not about a request.
	Warnings []string `json:"warnings,omitempty"`
	// Notes are about what affects no result.
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

// Result is the response of a cluster to one request.
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
	// Status is the client's response if the request is not admitted.
	Status *metav1.Status `json:"status,omitempty"`
	// Fields are the invalid fields with their lines.
	Fields []FieldLine `json:"fields,omitempty"`
	// Warnings are the warnings of the response.
	Warnings []string `json:"warnings,omitempty"`
	// Changes are those that the cluster makes to the object that was sent, except those that it makes to every object.
	Changes []Change `json:"changes,omitempty"`
	// Policies are the evaluated policies and their results.
	Policies []PolicyVerdict `json:"policies,omitempty"`
	// Explanations explain each policy, if requested: first mutating and then validating ones. If there are none, the request was
	// rejected before.
	Explanations []*explain.Policy `json:"explanations,omitempty"`
	// Notes are about what the result does not depend on.
	Notes []Note `json:"notes,omitempty"`
	// Object is what would be stored, or sent to the policies if the request is not admitted; absent after a deletion.
	Object map[string]any `json:"object,omitempty"`
}

// Note describes something that the result does not depend on. In JSON it is its text.
type Note struct {
	About NoteKind
	Text  string
}

// NoteKind is the subject of a note.
type NoteKind int

// Kinds of notes.
const (
	// AboutRequest is any other note.
	AboutRequest NoteKind = iota
	// AboutWebhook is why the API server does not call a webhook.
	AboutWebhook
	// AboutPatches means that the object is validated without the policies' patches.
	AboutPatches
)

// MarshalText returns the text.
func (n Note) MarshalText() ([]byte, error) { return []byte(n.Text), nil }

// UnmarshalText sets the text of a note of kind AboutRequest.
func (n *Note) UnmarshalText(text []byte) error {
	*n = Note{Text: string(text)}
	return nil
}

// PolicyVerdict is the result of one policy.
type PolicyVerdict struct {
	Policy string `json:"policy"`
	// Endpoint is mutate or validate.
	Endpoint string `json:"endpoint"`
	record.PolicyResult
}

// verdictsOf returns the results of the policies.
func verdictsOf(d *decision.Decision) (all []PolicyVerdict) {
	for _, p := range record.PoliciesOf(d) {
		all = append(all, PolicyVerdict{p.Policy, d.Endpoint, p.PolicyResult})
	}
	return all
}

// decides reports whether the policy denies the request.
func (p *PolicyVerdict) decides() bool { return p.Verdict == "denied" }

// unknown reports whether the policy could have another result in a cluster, or cannot evaluate such a request at all.
func (p *PolicyVerdict) unknown() bool {
	if p.Mode != v1alpha1.ModeEnforce {
		return false
	}
	if p.Verdict == "error_denied" {
		return true
	}
	// With onError: Allow a cluster admits what its policy does not understand; the other causes mean that something was unknown
	// here.
	return p.Verdict == "error_allowed" && p.Cause != engine.InputNotUnderstood && p.Cause != engine.EvaluationFailed &&
		p.Cause != engine.ContractViolated
}

// KubectlSays returns a status as kubectl prints it, without the file name.
func KubectlSays(status *metav1.Status) string {
	switch {
	case status.Reason == metav1.StatusReasonInvalid && status.Details != nil:
		return invalidText(status.Details)
	case status.Reason == "":
		return "Error from server: " + status.Message
	default:
		return fmt.Sprintf("Error from server (%s): %s", status.Reason, status.Message)
	}
}

func invalidText(d *metav1.StatusDetails) string {
	text := "The request is invalid"
	if d.Kind != "" || d.Name != "" {
		text = fmt.Sprintf("The %s %q is invalid", d.Kind, d.Name)
	}
	var causes []string
	for _, c := range d.Causes {
		cause := c.Message
		if c.Field != "" {
			cause = c.Field + ": " + c.Message
		}
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	switch len(causes) {
	case 0:
		return text
	case 1:
		return text + ": " + causes[0]
	}
	return text + ":\n* " + strings.Join(causes, "\n* ")
}
