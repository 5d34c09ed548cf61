package decision

import (
	"encoding/json"
	"fmt"

	"sallyport.dev/sallyport/webhooks/engine"
)

// mergePatches combines the patches of all policies, in the order of their names. A patch that does not apply, or changes more than the
// policy is granted, counts as the failure of its policy; the API server would reject the request without naming the policy.
func (d evaluation) mergePatches() {
	var object []byte
	var joined []engine.Patch
	for i := range d.verdicts {
		v := &d.verdicts[i]
		if v.Err != nil || len(v.Decision.Patches) == 0 {
			continue
		}
		if object == nil {
			object = d.Review.objectText()
		}
		changed, operations, err := engine.Apply(object, v.Decision.Patches)
		if err != nil {
			err = fmt.Errorf("applying its patch: %w", err)
		} else {
			err = v.Policy.CheckPatch(d.Review.Request, object, changed)
		}
		if err != nil {
			v.fail(engine.ContractViolated, &engine.Error{Cause: engine.ContractViolated, Facts: v.Decision.Facts, Err: err})
			continue
		}
		object = changed
		joined = append(joined, operations...)
	}
	if len(joined) == 0 {
		return
	}
	text, err := json.Marshal(joined)
	if err != nil {
		panic(err) // patches were decoded from JSON values
	}
	d.patch = text
}
