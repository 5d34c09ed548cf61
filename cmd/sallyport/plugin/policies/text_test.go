package policies

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/test/support/pages"
	"sallyport.dev/sallyport/webhooks/record"
)

var update = flag.Bool("update", false, "write testdata")

// What people read of policies in every state. -update writes it anew.
func TestPolicyTexts(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 14, 5, 0, time.UTC)
	given, err := os.ReadFile("testdata/policies.json")
	if err != nil {
		t.Fatal(err)
	}
	var policies []v1alpha1.RegoPolicy
	if err := json.Unmarshal(given, &policies); err != nil {
		t.Fatal(err)
	}
	same := map[string]string{"ns/a": "0123456789ab", "ns/b": "0123456789ab"}
	different := map[string]string{"ns/a": "0123456789ab", "ns/b": "ba9876543210", "ns/c": ""}
	denials := map[string]record.Denials{"defaults": {Denied: 3}, "operations-supersede": {Denied: 2, WouldDeny: 141}}
	for name, r := range map[string]cli.Report{
		"policies":      &policiesReport{policies: policies, serving: same, denials: denials},
		"policies-many": &policiesReport{policies: policies, serving: different},
		"unserved":      &policiesReport{policies: policies, serving: map[string]string{}, unserved: true},
		"policy":        &policyReport{policy: &policies[2], denials: &record.Denials{Denied: 2, WouldDeny: 141}},
		"policy-good":   &policyReport{policy: &policies[0]},
		"library":       &policyReport{policy: &policies[1]},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := cli.Render(&got, r, now); err != nil {
				t.Fatal(err)
			}
			pages.Golden(t, *update, filepath.Join("testdata", name+".txt"), got.String())
		})
	}
}
