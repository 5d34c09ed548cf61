package decision

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Denial is a denial, or a policy's failure, as it appears in the response.
type Denial struct {
	engine.Denial
	// Policy is the name of the policy.
	Policy string
}

// Text returns the denial with its title, and with its own remedy or that of the rule.
func (d Denial) Text() string {
	text := d.Title() + " " + d.WithRemedy()
	switch {
	case d.Remedy != "" || d.RuleRemedy == "":
		return text
	case strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "?"):
		return text + " " + d.RuleRemedy
	}
	return text + ". " + d.RuleRemedy
}

// WouldBeDenied is in the warning about a request that only the mode of a policy, or the open gate, admits: after the title.
const WouldBeDenied = "would be denied: "

// admittedText is [Denial.Text] for such a warning.
func (d Denial) admittedText() string {
	return d.Title() + " " + WouldBeDenied + strings.TrimPrefix(d.Text(), d.Title()+" ")
}

// short returns why the request is denied, if that is less than the text.
func (d Denial) short() string {
	if d.Cause == "" && d.Remedy != "" {
		return d.Message
	}
	return d.Cause
}

// Title returns "[policy/Reason]".
func (d Denial) Title() string { return "[" + d.Name() + "]" }

// Name returns "policy/Reason", which identifies the denial for programs.
func (d Denial) Name() string { return d.Policy + "/" + d.Reason }

// Denials returns the denials of a policy, or its error as one, whatever its mode.
func (v *Verdict) Denials() []Denial {
	if v.Err == nil {
		all := make([]Denial, len(v.Decision.Denials))
		for i, d := range v.Decision.Denials {
			all[i] = Denial{d, v.Policy.Name()}
		}
		return all
	}
	code := http.StatusInternalServerError
	if errors.Is(v.Err, facts.ErrNotSynced) {
		code = http.StatusServiceUnavailable
	}
	message := fmt.Sprintf("policy evaluation failed: %v", v.Err)
	if v.Err.Cause == engine.Panicked { // the stack goes to the record, not to the requester
		message = "policy evaluation panicked; the decision record has the stack"
	}
	return []Denial{{engine.Denial{Reason: string(v.Err.Cause), Message: message, Code: code}, v.Policy.Name()}}
}
