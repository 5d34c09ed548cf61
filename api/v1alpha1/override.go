package v1alpha1

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// PolicyOverride says who may override a denial of a policy.
//
// +kubebuilder:validation:Enum=Users;Everybody;Nobody
type PolicyOverride string

const (
	// OverrideUsers allows users who hold the verb override, except service
	// accounts: a person overrides a denial once and with a reason, but automation
	// would override it forever.
	OverrideUsers PolicyOverride = "Users"
	// OverrideEverybody also allows service accounts that hold the verb.
	OverrideEverybody PolicyOverride = "Everybody"
	// OverrideNobody allows no overrides.
	OverrideNobody PolicyOverride = "Nobody"
)

// AnnotationOverride on an object overrides the denials of one policy for the requests of one user, for a limited time and with a
// reason, if the user may override that policy: "<policy>; uid=<UID of the object, nothing at its creation>; by=<name of the user>;
// until=<time, at most an hour ahead>; <reason>".
const AnnotationOverride = "sallyport.dev/override"

// AnnotationAudit on a RegoPolicy requests an audit of existing objects whenever its value changes; by convention, the value is the time of
// the request. status.violations.requested is the value of the last finished audit. Every user who may change the policy may write it.
const AnnotationAudit = "sallyport.dev/audit-requested-at"

// Override is what AnnotationOverride says, in the form "POLICY; uid=UID; by=USER;
// until=TIME; REASON": by whom and until when the denials of a policy for an object
// are overridden. The webhooks decide whether it is valid.
//
// +kubebuilder:object:generate=false
type Override struct {
	// Policy is the name of the RegoPolicy.
	Policy string `json:"policy"`
	// UID is that of the object; empty if it is being created.
	UID types.UID `json:"uid,omitempty"`
	// By is the name of the user who may use it.
	By string `json:"by"`
	// Until is when the override expires.
	Until time.Time `json:"until"`
	// Reason is the reason for the override, readable by everyone.
	Reason string `json:"reason"`
}

const (
	// maxOverride is how many characters it may have, as many as spec.override of
	// an operation holds.
	maxOverride  = 1024
	overrideForm = `"POLICY; uid=UID; by=USER; until=TIME; REASON"`
)

// String returns the value of the annotation.
func (o *Override) String() string {
	return fmt.Sprintf("%s; uid=%s; by=%s; until=%s; %s", o.Policy, o.UID, o.By, o.Until.UTC().Format(time.RFC3339), o.Reason)
}

// Text returns the value of the annotation, if it would be read as this override. A
// user whose name has a semicolon cannot have one, because semicolons separate the fields.
func (o *Override) Text() (string, error) {
	if strings.Contains(o.By, ";") {
		return "", fmt.Errorf("user name %q cannot be in an override, because it has a semicolon", o.By)
	}
	text := o.String()
	if _, err := ParseOverride(text); err != nil {
		return "", err
	}
	return text, nil
}

// ParseOverride parses the value of the annotation. Errors do not quote the value:
// it may be on an object that the requester cannot read.
func ParseOverride(text string) (*Override, error) {
	switch {
	case utf8.RuneCountInString(text) > maxOverride:
		return nil, fmt.Errorf("it has more than %d characters", maxOverride)
	case strings.ContainsFunc(text, unicode.IsControl):
		return nil, errors.New("it has line breaks or other control characters, and there can be one override only")
	}
	var parts [5]string
	for i, part := range strings.SplitN(text, ";", len(parts)) {
		parts[i] = strings.TrimSpace(part)
	}
	uid, named := strings.CutPrefix(parts[1], "uid=")
	by, signed := strings.CutPrefix(parts[2], "by=")
	until, timed := strings.CutPrefix(parts[3], "until=")
	wrong := ""
	switch {
	case parts[0] == "":
		wrong = "the first field must be the name of the policy"
	case !named:
		wrong = "the second field must be uid=<object UID> (empty on create)"
	case !signed || by == "":
		wrong = "by= is missing: the third field must be by=<the user who may use it>"
	case !timed:
		wrong = "the fourth field must be until=<time>, and a user name cannot have a semicolon"
	case parts[4] == "":
		wrong = "the fifth field, the reason, is missing"
	}
	if wrong != "" {
		return nil, fmt.Errorf("%s, as in %s", wrong, overrideForm)
	}
	end, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return nil, errors.New("until= must be a time such as 2026-01-02T15:04:05Z")
	}
	return &Override{Policy: parts[0], UID: types.UID(uid), By: by, Until: end, Reason: parts[4]}, nil
}
