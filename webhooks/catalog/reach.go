package catalog

import (
	"sallyport.dev/sallyport/api/v1alpha1"
)

// Matches returns the active spec.match, without selectors that select everything; none if it has no resources.
func (p *Policy) Matches() []v1alpha1.PolicyMatch {
	if p.match.PolicyMatch == nil {
		return nil
	}
	return []v1alpha1.PolicyMatch{*p.match.PolicyMatch}
}

// DeniesUnevaluated reports whether a request can be denied because the policy cannot be evaluated.
func (p *Policy) DeniesUnevaluated() bool {
	return p.regime.strictest() == v1alpha1.ModeEnforce && p.OnError == v1alpha1.OnErrorDeny
}
