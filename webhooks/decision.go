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

// Decision is a question with all that was said about it. Nothing in it changes any more: what is sent, recorded, counted, told or
// printed of it is made from it.
type Decision struct {
	Question
	id       types.UID
	set      *catalog.Set
	reader   engine.Reader // of what is asked beside the policies
	verdicts []verdict
	override carried
	patch    []byte // of all policies together
	eased    bool   // the open gate admits what would have been refused, or leaves out a patch
	asked    map[string]engine.Fact
}

// verdict is what one policy says about a request. Exactly one of decision and err is set.
type verdict struct {
	policy   *catalog.Policy
	mode     v1alpha1.PolicyMode // that of the request's namespace
	decision *engine.Decision
	err      *engine.Error
	override *Override // by which the request passes all the same
	took     time.Duration
}

// Override is by whom a request passed a policy that refused it, and why.
type Override struct {
	By     string `json:"by"`
	Until  string `json:"until"`
	Reason string `json:"reason"`
}

// carried is the override that a refused request carries, what it is held against, and what came of it.
type carried struct {
	field string // where it is written
	text  string // "" if there is none
	// on is what it is, or would be, written on, for events, too.
	on  corev1.ObjectReference
	uid types.UID // that it must name: none at a creation
	at  time.Time // when it must be in force
	// seen tells that what it is on was read live, and is as the review has it.
	seen bool
	// ignored is why it lets the request pass nothing.
	ignored error
}

// errNotKnown means that it could not be found out whether an override counts.
var errNotKnown = errors.New("checking the override")

// open tells whether it may count after all.
func (c *carried) open() bool { return errors.Is(c.ignored, errNotKnown) }

// problem says what is wrong with it, and where it is written; nil if nothing is.
func (c *carried) problem() error {
	if c.ignored == nil {
		return nil
	}
	return fmt.Errorf("%s is ignored: %w", c.field, c.ignored)
}

func (c *carried) warnings() []string {
	if c.ignored == nil {
		return nil
	}
	return []string{c.problem().Error()}
}

// Allowed tells whether no policy keeps the request out.
func (d *Decision) Allowed() bool {
	return !slices.ContainsFunc(d.verdicts, func(v verdict) bool { return v.refuses() })
}

// Patch is what all policies together change in the object, as text of RFC 6902; nil if that is nothing, or the request is refused.
func (d *Decision) Patch() []byte {
	if !d.Allowed() {
		return nil
	}
	return d.patch
}

// IgnoredOverride is why the override that the request carries lets it pass nothing; empty if there is none, it counts, or none was
// needed.
func (d *Decision) IgnoredOverride() string {
	if d.override.ignored == nil {
		return ""
	}
	return inOneLine(d.override.ignored.Error())
}

// OpenOverride is the warning about an override of which it could not be found out whether it counts; empty if there is none.
func (d *Decision) OpenOverride() string {
	if !d.override.open() {
		return ""
	}
	return inOneLine(d.override.problem().Error())
}

// inOneLine has a warning in a line of its own: the API server drops one with a line break, or another control character.
func inOneLine(warning string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, warning)
}

// fail has the policy be one that could not decide: for a cause, if the error does not say another.
func (v *verdict) fail(cause engine.Cause, err error) {
	v.decision = nil
	if !errors.As(err, &v.err) {
		v.err = &engine.Error{Cause: cause, Err: err}
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

// final is the denial that says that no override helps; nil if there is none.
func (v *verdict) final() *objection {
	for _, o := range v.objections() {
		if o.Final {
			return &o
		}
	}
	return nil
}

// known is what a policy decided on, or failed on.
func (v *verdict) known() map[string]engine.Fact {
	if v.err != nil {
		return v.err.Facts
	}
	return v.decision.Facts
}

// word says what became of a verdict: denied, warned, audited, overridden, allowed, or error with what onError made of it.
func (v *verdict) word() string {
	switch {
	case v.override != nil:
		return "overridden"
	case v.err != nil && v.refuses():
		return "error_denied"
	case v.err != nil:
		return "error_allowed"
	case len(v.decision.Denials) == 0:
		return "allowed"
	case v.refuses():
		return "denied"
	case v.mode == v1alpha1.ModeWarn:
		return "warned"
	default:
		return "audited"
	}
}

// objection is one denial, or one policy's failure to decide, in the words of the response.
type objection struct {
	engine.Denial
	policy string
}

// text is "[policy/Reason] message": who says it, a word to search for, and what to do.
func (o objection) text() string {
	return sentences(fmt.Sprintf("%s %s", o.title(), o.Message), o.Remedy)
}

func (o objection) title() string { return "[" + o.name() + "]" }

// name is "policy/Reason", by which programs tell objections apart.
func (o objection) name() string { return o.policy + "/" + o.Reason }

// sentences puts what to do behind what is wrong. Either may be without a full stop.
func sentences(wrong, remedy string) string {
	switch {
	case remedy == "":
		return wrong
	case strings.HasSuffix(wrong, ".") || strings.HasSuffix(wrong, "!") || strings.HasSuffix(wrong, "?"):
		return wrong + " " + remedy
	}
	return wrong + ". " + remedy
}

// objections of a verdict, whatever its mode makes of them.
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
	if v.err.Cause == engine.Panicked { // the stack is for the log, not for the requester
		message = "policy evaluation panicked; the decision record has the stack"
	}
	return []objection{{engine.Denial{Reason: string(v.err.Cause), Message: message, Code: code}, v.policy.Name()}}
}
