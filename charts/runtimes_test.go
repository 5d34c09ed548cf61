package charts_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/charts"
)

// A runtime that is missing from a rule could be set beside another one, or changed to another one.
func TestRulesNameEveryRuntime(t *testing.T) {
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, crd := range crds {
		if !slices.Contains([]string{"VirtualMachine", "VirtualDisk"}, crd.Spec.Names.Kind) {
			continue
		}
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["runtime"]
		for name := range schema.Properties {
			for _, rule := range schema.XValidations {
				seen++
				if rule.Rule != "self == oldSelf" && !strings.Contains(rule.Rule, "has(self."+name+")") {
					t.Errorf("%s spec.runtime.%s: missing from the rule %s", crd.Spec.Names.Kind, name, rule.Rule)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no rule was found")
	}
}
