package catalog

import (
	"sallyport.dev/sallyport/api/v1alpha1"
)

// Matches returns the matches that a request must all satisfy; the first has every resource that can match. Invalid requirements of
// selectors are ignored, as in Select.
func (p *Policy) Matches() []v1alpha1.PolicyMatch {
	var all []v1alpha1.PolicyMatch
	for _, m := range p.match {
		if m.PolicyMatch != nil {
			all = append(all, *m.PolicyMatch)
		}
	}
	return all
}

// RefusesUnasked reports whether a request can be denied because the policy cannot be evaluated.
func (p *Policy) RefusesUnasked() bool {
	mode := v1alpha1.ModeEnforce
	for _, r := range p.regimes {
		mode = looser(mode, r.strictest())
	}
	return mode == v1alpha1.ModeEnforce && p.OnError == v1alpha1.OnErrorDeny
}
