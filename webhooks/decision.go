package webhooks

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Decision is a question with the results of all policies. It does not change after [Gate.Decide] has returned it: response,
// record, metrics and events are made from it.
type Decision struct {
	Question
	id       types.UID
	set      *catalog.Set
	reader   engine.Reader // answers queries that are not of policies
	verdicts []verdict
	override carriedOverride
	patch    []byte // combined from all policies
	relaxed  bool   // the open gate admits a request that would have been denied, or omits its patch
	queried  map[string]engine.Fact
}

// verdict is the result of one policy for a request. Exactly one of decision and err is set.
type verdict struct {
	policy   *catalog.Policy
	mode     v1alpha1.PolicyMode // in the request's namespace
	decision *engine.Decision
	err      *engine.Error
	override *Override // admits the request although the policy denies it
	took     time.Duration
}

// Override records who overrode a denial, until when, and why.
type Override struct {
	By     string `json:"by"`
	Until  string `json:"until"`
	Reason string `json:"reason"`
}

// carriedOverride is the override that a denied request carries, with what it is checked against and the outcome.
type carriedOverride struct {
	field string // that contains it
	text  string // "" if there is none
	// on is the object that has the annotation, or would have it; events name it, too.
	on  corev1.ObjectReference
	uid types.UID // required in the override; empty at a creation
	at  time.Time // time at which it must be in force
	// seen reports whether the object was read live and equals the review's.
	seen bool
	// ignored is why the override does not count.
	ignored error
}

// errOverrideUnknown means that the override could not be checked.
var errOverrideUnknown = errors.New("checking the override")

// open reports whether the override could not be checked, so that it may count after all.
func (c *carriedOverride) open() bool { return errors.Is(c.ignored, errOverrideUnknown) }

// problem returns why the override is ignored, with the field that has it; nil if it is not.
func (c *carriedOverride) problem() error {
	if c.ignored == nil {
		return nil
	}
	return fmt.Errorf("%s is ignored: %w", c.field, c.ignored)
}

func (c *carriedOverride) warnings() []string {
	if c.ignored == nil {
		return nil
	}
	return []string{c.problem().Error()}
}

// Allowed reports whether no policy denies the request.
func (d *Decision) Allowed() bool {
	return !slices.ContainsFunc(d.verdicts, func(v verdict) bool { return v.denies() })
}

// Patch returns the combined JSON patch (RFC 6902) of all policies; nil if it is empty or the request is denied.
func (d *Decision) Patch() []byte {
	if !d.Allowed() {
		return nil
	}
	return d.patch
}

// IgnoredOverride returns why the request's override is ignored; empty if it has none, it counts, or none was needed.
func (d *Decision) IgnoredOverride() string {
	if d.override.ignored == nil {
		return ""
	}
	return inOneLine(d.override.ignored.Error())
}

// OpenOverride returns the warning about an override that could not be checked; empty if there is none.
func (d *Decision) OpenOverride() string {
	if !d.override.open() {
		return ""
	}
	return inOneLine(d.override.problem().Error())
}

// inOneLine replaces control characters: the API server drops warnings that contain any, such as line breaks.
func inOneLine(warning string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, warning)
}

// fail replaces the result by an error, with the given cause unless err has its own.
func (v *verdict) fail(cause engine.Cause, err error) {
	v.decision = nil
	if !errors.As(err, &v.err) {
		v.err = &engine.Error{Cause: cause, Err: err}
	}
}

// denies reports whether the policy denies the request. Modes Warn and Audit cover errors too: a policy under trial must not block
// requests because it is broken.
func (v *verdict) denies() bool { return v.mode == v1alpha1.ModeEnforce && v.blocks() }

// admitsByMode reports whether the request passes only because of the policy's mode.
func (v *verdict) admitsByMode() bool { return v.mode != v1alpha1.ModeEnforce && v.blocks() }

// blocks reports whether the policy denies the request, and no override applies.
func (v *verdict) blocks() bool {
	if v.override != nil {
		return false
	}
	if v.err != nil {
		return v.policy.OnError == v1alpha1.OnErrorDeny
	}
	return len(v.decision.Denials) > 0
}

// finalDenial returns the first denial that excludes overrides, or nil.
func (v *verdict) finalDenial() *objection {
	for _, o := range v.objections() {
		if o.Final {
			return &o
		}
	}
	return nil
}

// facts returns the facts of the evaluation, failed or not.
func (v *verdict) facts() map[string]engine.Fact {
	if v.err != nil {
		return v.err.Facts
	}
	return v.decision.Facts
}

// result returns the result in the words of decision records: denied, warned, audited, overridden, allowed, error_denied or error_allowed.
func (v *verdict) result() string {
	switch {
	case v.override != nil:
		return "overridden"
	case v.err != nil && v.denies():
		return "error_denied"
	case v.err != nil:
		return "error_allowed"
	case len(v.decision.Denials) == 0:
		return "allowed"
	case v.denies():
		return "denied"
	case v.mode == v1alpha1.ModeWarn:
		return "warned"
	default:
		return "audited"
	}
}

// objection is a denial, or a policy's failure, as it appears in the response.
type objection struct {
	engine.Denial
	policy string
}

// text returns "[policy/Reason] message remedy".
func (o objection) text() string {
	return sentences(fmt.Sprintf("%s %s", o.title(), o.Message), o.Remedy)
}

func (o objection) title() string { return "[" + o.name() + "]" }

// name returns "policy/Reason", which identifies the denial for programs.
func (o objection) name() string { return o.policy + "/" + o.Reason }

// sentences appends remedy to wrong. Either may lack a full stop.
func sentences(wrong, remedy string) string {
	switch {
	case remedy == "":
		return wrong
	case strings.HasSuffix(wrong, ".") || strings.HasSuffix(wrong, "!") || strings.HasSuffix(wrong, "?"):
		return wrong + " " + remedy
	}
	return wrong + ". " + remedy
}

// objections returns the denials of a policy, or its error as one, whatever its mode.
func (v *verdict) objections() []objection {
	if v.err == nil {
		all := make([]objection, len(v.decision.Denials))
		for i, d := range v.decision.Denials {
			all[i] = objection{d, v.policy.Name()}
		}
		return all
	}
	code := http.StatusInternalServerError
	if errors.Is(v.err, facts.ErrNotSynced) {
		code = http.StatusServiceUnavailable
	}
	message := fmt.Sprintf("policy evaluation failed: %v", v.err)
	if v.err.Cause == engine.Panicked { // the stack goes to the record, not to the requester
		message = "policy evaluation panicked; the decision record has the stack"
	}
	return []objection{{engine.Denial{Reason: string(v.err.Cause), Message: message, Code: code}, v.policy.Name()}}
}
