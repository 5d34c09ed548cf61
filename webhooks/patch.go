package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"sallyport.dev/sallyport/webhooks/engine"
)

// patch joins the patches of all policies, in the order of their names. One that does not apply is its policy's failure, because
// the API server would refuse the request without naming whom to ask; so is one that changes more than policies are granted.
func (j *judgement) patch() []byte {
	object := j.review.Request.Object.Raw
	var joined []engine.Patch
	for i := range j.verdicts {
		v := &j.verdicts[i]
		if v.err != nil || len(v.decision.Patches) == 0 {
			continue
		}
		changed, err := apply(object, v.decision.Patches)
		if err != nil {
			err = fmt.Errorf("its patch does not apply: %w", err)
		} else {
			err = v.policy.CheckPatch(j.review.Request, object, changed)
		}
		if err != nil {
			v.fail(&engine.Error{Cause: engine.ContractViolated, Facts: v.decision.Facts, Err: err})
			continue
		}
		object = changed
		joined = append(joined, v.decision.Patches...)
	}
	if len(joined) == 0 {
		return nil
	}
	text, err := json.Marshal(joined)
	if err != nil {
		panic(err) // patches were decoded from JSON values
	}
	return text
}

func apply(object []byte, patches []engine.Patch) ([]byte, error) {
	if len(object) == 0 { // json-patch would leave nothing unchanged, and call that success
		return nil, errors.New("the request has no object")
	}
	text, err := json.Marshal(patches)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, err
	}
	return decoded.Apply(object)
}
