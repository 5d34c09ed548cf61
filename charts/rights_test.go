package charts_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// abilities are those of files/rights.yaml, with the value that enables each. Drains need machines that are Pods, and templates a vCenter.
var abilities = []string{"vsphere", "templates", "pod", "drains", "kubevirt", "pools", "images", "reports"}

const valuesOfAbilities = "{runtimes: {vsphere: {enabled: %[1]v}, pod: {enabled: %[3]v, drains: {enabled: %[4]v}}, kubevirt: {enabled: %[5]v}}, " +
	"templates: {enabled: %[2]v}, pools: {enabled: %[6]v}, diskImages: {enabled: %[7]v}, audits: {reports: %[8]v}}"

// Every combination of what can be enabled has the rights that the list says, such as those for boot disks without pools (cluster-api#4880):
// 256 of them, and under -short none, all, and each ability alone and missing.
func TestRightsOfCombinations(t *testing.T) {
	text, err := os.ReadFile("sallyport/files/rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		For                    []string
		Group                  string
		Resources, Verbs, What any
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	listed := func(enabled map[string]bool) map[string]bool {
		rights := map[string]bool{}
		for _, entry := range list {
			if entry.For != nil && !slices.ContainsFunc(entry.For, func(a string) bool { return enabled[a] }) {
				continue
			}
			for _, resource := range entry.Resources.([]any) {
				for _, verb := range entry.Verbs.([]any) {
					rights[fmt.Sprintf("%s %s.%s", verb, resource, entry.Group)] = true
				}
			}
		}
		return rights
	}
	everything := map[string]bool{}
	for _, ability := range abilities {
		everything[ability] = true
	}
	known := listed(everything)
	for i := range v1alpha1.Kinds {
		for _, right := range []string{"list " + v1alpha1.Kinds[i].Resource(), "update " + v1alpha1.Kinds[i].Resource() + "/status"} {
			if !known[right+"."+v1alpha1.GroupName] {
				t.Errorf("nothing grants the right to %s", right)
			}
		}
	}
	others := map[string]bool{} // what policies read, and Secrets of vCenters in the namespace of the release
	for combination := range 1 << len(abilities) {
		enabled, switches := map[string]bool{}, make([]any, len(abilities))
		for i, ability := range abilities {
			enabled[ability] = combination>>i&1 == 1
			switches[i] = enabled[ability]
		}
		if on := len(slices.DeleteFunc(slices.Clone(switches), func(is any) bool { return is == false })); testing.Short() && 1 < on && on < len(abilities)-1 {
			continue
		}
		enabled["templates"], enabled["drains"] = enabled["templates"] && enabled["vsphere"], enabled["drains"] && enabled["pod"]
		values := fmt.Sprintf(valuesOfAbilities, switches...)
		got, want := granted(t, values), listed(enabled)
		if combination <= 1 { // nothing, and vCenters
			maps.Copy(others, got)
			maps.DeleteFunc(others, func(right string, _ bool) bool { return combination == 1 && want[right] })
		}
		for right := range known {
			if has := got[right]; has != want[right] && (!has || !others[right]) {
				t.Errorf("with %s the right to %s is granted: %v, but listed: %v", values, right, has, want[right])
			}
		}
		for right := range got {
			if !known[right] && !others[right] {
				t.Errorf("with %s the right to %s is granted, which nothing lists", values, right)
			}
		}
	}
}
