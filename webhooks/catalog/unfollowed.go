package catalog

import "sallyport.dev/sallyport/webhooks/engine"

// Unfollowed gives what keeps a policy from being decided on as little of a request as it reads, as [engine.Policy.Unfollowed]
// does; nothing of a policy that does not compile, or of a library.
func (s Source) Unfollowed() engine.CompileErrors {
	policy, err := s.compile()
	if err != nil || policy == nil {
		return nil
	}
	return policy.Unfollowed()
}
