package shipping

import (
	"testing"
)

// The API server tells the fields of a policy from each other as policyType says.
func TestFieldsAreTheServers(t *testing.T) {
	f := newFixture(t)
	shipped := f.release("1.0.0")
	f.ship(shipped)
	live := f.live()
	o, err := ownersOf(live.GetManagedFields())
	f.must(err)
	of, _, err := recorded(shipped)
	f.must(err)
	if !o.ours.Equals(of.set) {
		t.Errorf("the server says\n%s\nwe say\n%s", o.ours, of.set)
	}
	f.edited(shipped)
}
