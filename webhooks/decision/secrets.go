package decision

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"sallyport.dev/sallyport/webhooks/engine"
)

// redacted replaces the data of a Secret in messages.
const redacted = "(data of the Secret)"

// shortestSecret is the length from which values are redacted: shorter ones occur in every text and are no secrets.
const shortestSecret = 4

// secrets returns the values of the request's Secret, in the forms in which policies put them into messages. The longest come
// first, so that no part of a value remains.
func (r *Review) secrets() []string {
	if !r.ofSecret() {
		return nil
	}
	known := map[string]bool{}
	add := func(value string) {
		known[value] = true
		if quoted, err := json.Marshal(value); err == nil {
			known[string(quoted[1:len(quoted)-1])] = true
		}
		if lines := strings.Split(value, "\n"); len(lines) > 1 {
			for _, line := range lines {
				known[strings.TrimSpace(line)] = true
			}
		}
	}
	for _, object := range []string{"object", "oldObject"} {
		for _, field := range []string{"data", "stringData"} {
			r.Document.Get(object).Get(field).Each(func(_ string, v engine.Value) {
				text := v.Text()
				add(text)
				add(base64.StdEncoding.EncodeToString([]byte(text)))
				if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
					add(string(decoded))
				}
			})
		}
	}
	var all []string
	for value := range known {
		if len(value) >= shortestSecret {
			all = append(all, value)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return all
}

func (r *Review) ofSecret() bool {
	return r.Request.Kind.Group == "" && r.Request.Kind.Kind == "Secret"
}

// concealResults returns a text with results of policies for the log. Of a request with a Secret, whose values are not redacted yet and can
// be cut off or encoded, nothing is shown.
func (r *Review) concealResults(text string) string {
	if text == "" || !r.ofSecret() {
		return text
	}
	return "the results are not shown because the request has a Secret"
}

// redactSecrets redacts the values of the request's Secret in the results of policies: responses are in audit logs, denials in events and
// reports, which users without access to the Secret can read.
func (d evaluation) redactSecrets() {
	if !slices.ContainsFunc(d.verdicts, func(v Verdict) bool { return v.Err != nil || len(v.Decision.Denials)+len(v.Decision.Warnings) > 0 }) {
		return
	}
	secrets := d.Review.secrets()
	for i := range d.verdicts {
		v := &d.verdicts[i]
		if v.Err != nil {
			v.Err = &engine.Error{Cause: v.Err.Cause, Facts: v.Err.Facts, Err: &concealedError{v.Err.Err, withoutSecrets(v.Err.Err.Error(), secrets)}}
			continue
		}
		for k := range v.Decision.Denials {
			denial := &v.Decision.Denials[k]
			on := &denial.Details
			for _, text := range []*string{&denial.Message, &denial.Cause, &denial.Remedy, &on.Group, &on.Kind, &on.Name, &on.UID, &on.Field} {
				*text = withoutSecrets(*text, secrets)
			}
		}
		for k := range v.Decision.Warnings {
			v.Decision.Warnings[k] = withoutSecrets(v.Decision.Warnings[k], secrets)
		}
	}
}

type concealedError struct {
	error
	text string
}

func (e *concealedError) Error() string { return e.text }
func (e *concealedError) Unwrap() error { return e.error }

func withoutSecrets(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, redacted)
	}
	return text
}
