package catalog

import "sallyport.dev/sallyport/webhooks/engine"

// Unfollowed returns [engine.Policy.Unfollowed] of the compiled policy; nil for a library or a policy that does not compile.
func (s Source) Unfollowed() engine.CompileErrors {
	policy, err := s.compile()
	if err != nil || policy == nil {
		return nil
	}
	return policy.Unfollowed()
}
