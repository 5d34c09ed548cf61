package catalog

import (
	"sallyport.dev/sallyport/api/v1alpha1"
)

// Matches are what a request must meet, each of them; the first has every resource that can be met. Requirements of a selector
// that cannot be used are left out, as they are for requests.
func (p *Policy) Matches() []v1alpha1.PolicyMatch {
	var all []v1alpha1.PolicyMatch
	for _, m := range p.match {
		if m.PolicyMatch != nil {
			all = append(all, *m.PolicyMatch)
		}
	}
	return all
}

// RefusesUnasked tells whether there is a request that is to be refused if the policy cannot be asked about it.
func (p *Policy) RefusesUnasked() bool {
	mode := v1alpha1.ModeEnforce
	for _, r := range p.regimes {
		mode = looser(mode, r.strictest())
	}
	return mode == v1alpha1.ModeEnforce && p.OnError == v1alpha1.OnErrorDeny
}
