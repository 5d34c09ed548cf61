package decision

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Decision is a question with the results of all policies. [Decider.Decide] makes it, and nothing changes it afterwards: response, record,
// metrics and events are made from it.
type Decision struct {
	Question
	id       types.UID
	reader   engine.Reader // answers queries that are not of policies
	verdicts []Verdict
	carried  CarriedOverride
	patch    []byte // combined from all policies
	relaxed  bool   // the open gate admits a request that would have been denied, or omits its patch
	queried  map[string]engine.Fact
}

// ID identifies the decision in audit annotations and records.
func (d *Decision) ID() types.UID { return d.id }

// Verdicts returns the results of all policies, in the order of their names.
func (d *Decision) Verdicts() []Verdict { return slices.Clone(d.verdicts) }

// Carried returns the override that the request carries. It is looked up only if a policy denies the request.
func (d *Decision) Carried() CarriedOverride { return d.carried }

// Queried returns the answers to queries that were not of policies, by name.
func (d *Decision) Queried() map[string]engine.Fact { return maps.Clone(d.queried) }

// Reader returns the reader for queries about the request that are not of policies.
func (d *Decision) Reader() engine.Reader { return d.reader }

// Verdict is the result of one policy for a request. Exactly one of Decision and Err is set.
type Verdict struct {
	Policy *catalog.Policy
	// Mode is the policy's mode in the request's namespace.
	Mode     v1alpha1.PolicyMode
	Decision *engine.Decision
	Err      *engine.Error
	// Override is set if it admits the request although the policy denies it.
	Override *Override
	// Took is the duration of the evaluation, with its facts.
	Took time.Duration
}

// Override records who overrode a denial, until when, and why.
type Override struct {
	By     string `json:"by"`
	Until  string `json:"until"`
	Reason string `json:"reason"`
}

// CarriedOverride is the override that a denied request carries, with what it is checked against and the outcome.
type CarriedOverride struct {
	field string // that contains it
	// Text is the override as written; "" if there is none.
	Text string
	// On is the object that has the annotation, or would have it; events name it, too.
	On  corev1.ObjectReference
	uid types.UID // required in the override; empty at a creation
	at  time.Time // time at which it must be in force
	// Seen reports whether the object was read live and equals the review's.
	Seen bool
	// ignored is why the override does not count.
	ignored error
}

// errOverrideUnknown means that the override could not be checked.
var errOverrideUnknown = errors.New("checking the override")

// open reports whether the override could not be checked, so that it may count after all.
func (c *CarriedOverride) open() bool { return errors.Is(c.ignored, errOverrideUnknown) }

// problem returns why the override is ignored, with the field that has it; nil if it is not.
func (c *CarriedOverride) problem() error {
	if c.ignored == nil {
		return nil
	}
	return fmt.Errorf("%s is ignored: %w", c.field, c.ignored)
}

func (c *CarriedOverride) warnings() []string {
	if c.ignored == nil {
		return nil
	}
	return []string{c.problem().Error()}
}

// Allowed reports whether no policy denies the request.
func (d *Decision) Allowed() bool {
	return !slices.ContainsFunc(d.verdicts, func(v Verdict) bool { return v.Denies() })
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
	if d.carried.ignored == nil {
		return ""
	}
	return InOneLine(d.carried.ignored.Error())
}

// OpenOverride returns the warning about an override that could not be checked; empty if there is none.
func (d *Decision) OpenOverride() string {
	if !d.carried.open() {
		return ""
	}
	return InOneLine(d.carried.problem().Error())
}

// InOneLine replaces control characters: the API server drops warnings that contain any, such as line breaks.
func InOneLine(warning string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, warning)
}

// fail replaces the result by an error, with the given cause unless err has its own.
func (v *Verdict) fail(cause engine.Cause, err error) {
	v.Decision = nil
	if !errors.As(err, &v.Err) {
		v.Err = &engine.Error{Cause: cause, Err: err}
	}
}

// Denies reports whether the policy denies the request. Modes Warn and Audit cover errors too: a policy under trial must not block
// requests because it is broken.
func (v *Verdict) Denies() bool { return v.Mode == v1alpha1.ModeEnforce && v.blocks() }

// AdmitsByMode reports whether the request passes only because of the policy's mode.
func (v *Verdict) AdmitsByMode() bool { return v.Mode != v1alpha1.ModeEnforce && v.blocks() }

// blocks reports whether the policy denies the request, and no override applies.
func (v *Verdict) blocks() bool {
	if v.Override != nil {
		return false
	}
	if v.Err != nil {
		return v.Policy.OnError == v1alpha1.OnErrorDeny
	}
	return len(v.Decision.Denials) > 0
}

// finalDenial returns the first denial that excludes overrides, or nil.
func (v *Verdict) finalDenial() *Denial {
	for _, o := range v.Denials() {
		if o.Final {
			return &o
		}
	}
	return nil
}

// Facts returns the facts of the evaluation, failed or not.
func (v *Verdict) Facts() map[string]engine.Fact {
	if v.Err != nil {
		return v.Err.Facts
	}
	return v.Decision.Facts
}

// ResultAllowed is the result of a policy that allows the request.
const ResultAllowed = "allowed"

// Result returns the result in the words of decision records: denied, warned, audited, overridden, allowed, error_denied or error_allowed.
func (v *Verdict) Result() string {
	switch {
	case v.Override != nil:
		return "overridden"
	case v.Err != nil && v.Denies():
		return "error_denied"
	case v.Err != nil:
		return "error_allowed"
	case len(v.Decision.Denials) == 0:
		return ResultAllowed
	case v.Denies():
		return "denied"
	case v.Mode == v1alpha1.ModeWarn:
		return "warned"
	default:
		return "audited"
	}
}
