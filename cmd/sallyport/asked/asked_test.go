package asked

import (
	"testing"

	"sallyport.dev/sallyport/policies"
)

// What is shipped can be asked.
func TestShippedPoliciesCanBeRegistered(t *testing.T) {
	all, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		for _, why := range Check(&all[i]) {
			t.Errorf("%s: %s", all[i].Name, why)
		}
	}
}
