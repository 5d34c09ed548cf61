package catalog

import (
	"cmp"
	"fmt"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Active policies stay in memory: [engine.MostWeight] limits each of them, and MostWeight all together. Time and memory of a compilation are
// limited where a policy is written, by a child process (package testrun), and not here.

// MostWeight limits the sum of all [engine.Policy.Weight], in bytes.
const MostWeight = 192 << 20

// Weight returns the estimated memory of the policy, 0 if it is broken.
func (p *Policy) Weight() int64 {
	if p.Policy == nil {
		return 0
	}
	return p.Policy.Weight()
}

// CheckWeight returns an error if a policy and the others together weigh more than most.
func CheckWeight(name string, weight, others, most int64) error {
	if weight+others <= most {
		return nil
	}
	return fmt.Errorf("policy %s needs about %s of memory and the others about %s, but the limit for all policies is %s: "+
		"delete unused policies, or make their modules, imported libraries or parameters smaller",
		name, engine.Mebibytes(weight), engine.Mebibytes(others), engine.Mebibytes(most))
}

// byAge returns the indexes of objects, the oldest first. Objects of the same age keep their order, which is by name.
func byAge(objects []v1alpha1.RegoPolicy) []int {
	order := make([]int, len(objects))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(objects[a].CreationTimestamp.Compare(objects[b].CreationTimestamp.Time), cmp.Compare(a, b))
	})
	return order
}
