// Package asked tells the registration of webhooks, which knows nothing of policies, what of one concerns it.
package asked

import (
	"time"

	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// About is what the API server is to ask a policy about, and how. It may take the API's default timeout.
func About(p *catalog.Policy) registration.Policy {
	return registration.Policy{
		Name: p.Name(), Matches: p.Matches(), Validates: p.Validates(), Mutates: p.Mutates(),
		Refuses: p.RefusesUnasked(), Broken: p.Broken() != nil, Timeout: DefaultTimeout,
		MayNotPatch: p.MayNotPatch,
	}
}

// DefaultTimeout of a policy, as the API has it.
const DefaultTimeout = 500 * time.Millisecond
