package main

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/policies"
)

// Every shipped policy is told, users' before libraries, and every reason that a rule gives.
func TestPolicyCatalogue(t *testing.T) {
	text, err := policyCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	lastPolicy, firstLibrary := 0, len(text)
	for i := range shipped {
		policy := &shipped[i]
		at := strings.Index(text, "\n## "+policy.Name+"\n")
		switch {
		case at < 0:
			t.Errorf("the page does not tell of %s", policy.Name)
		case policy.Spec.Library:
			firstLibrary = min(firstLibrary, at)
		default:
			lastPolicy = max(lastPolicy, at)
		}
		for _, module := range policy.Spec.Modules {
			if target := shippedModule(policy, module.Name); !strings.Contains(text, "("+target+")") {
				t.Errorf("the page has no link to %s", target)
			}
			for _, reason := range reasons(module.Source) {
				if !strings.Contains(text, "\n### "+policy.Name+"/"+reason+"\n") {
					t.Errorf("the page does not tell what [%s/%s] means", policy.Name, reason)
				}
			}
		}
	}
	if firstLibrary < lastPolicy {
		t.Error("a library comes before a policy")
	}
}

// reasons are those that the text of a module gives in denials, found without parsing it.
func reasons(source string) (found []string) {
	for _, part := range strings.Split(source, `"reason": "`)[1:] {
		reason, _, _ := strings.Cut(part, `"`)
		found = append(found, reason)
	}
	return found
}
