package record

import (
	"encoding/json"
	"sync"

	"sallyport.dev/sallyport/webhooks/decision"
)

// Denials are numbers of denials by one policy since the replica started, dry runs included. A request that a policy denies for several
// reasons counts for each, as in the metric sallyport_decisions_total.
type Denials struct {
	// Denied is how many were in force, also because the policy could not be evaluated.
	Denied int `json:"denied,omitempty"`
	// WouldDeny is how many modes Warn and Audit admitted.
	WouldDeny int `json:"wouldDeny,omitempty"`
}

// Plus returns the sum of the denials of two replicas.
func (d Denials) Plus(other Denials) Denials {
	return Denials{d.Denied + other.Denied, d.WouldDeny + other.WouldDeny}
}

// denials are those of each policy that has any.
type denials struct {
	mu sync.Mutex
	of map[string]Denials
}

func (c *denials) count(v *decision.Verdict) {
	n := len(v.Denials())
	c.mu.Lock()
	defer c.mu.Unlock()
	switch sum := c.of[v.Policy.Name()]; {
	case v.Denies():
		c.of[v.Policy.Name()] = sum.Plus(Denials{Denied: n})
	case v.AdmitsByMode():
		c.of[v.Policy.Name()] = sum.Plus(Denials{WouldDeny: n})
	}
}

func (c *denials) forget(policy string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, policy)
}

// Denials returns the [Denials] of validating webhooks by policy, as JSON, without policies that have none.
func (r *Recorder) Denials() string {
	r.denials.mu.Lock()
	defer r.denials.mu.Unlock()
	text, _ := json.Marshal(r.denials.of) // names and numbers can always be encoded
	return string(text)
}
