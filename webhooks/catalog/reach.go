package catalog

import (
	"sallyport.dev/sallyport/api/v1alpha1"
)

// Matches returns the spec.match that decides, without selectors that select everything; none if it has no resources.
func (p *Policy) Matches() []v1alpha1.PolicyMatch {
	if p.match.PolicyMatch == nil {
		return nil
	}
	return []v1alpha1.PolicyMatch{*p.match.PolicyMatch}
}

// RefusesUnasked tells whether there is a request that is to be refused if the policy cannot be asked about it.
func (p *Policy) RefusesUnasked() bool {
	return p.regime.strictest() == v1alpha1.ModeEnforce && p.OnError == v1alpha1.OnErrorDeny
}
