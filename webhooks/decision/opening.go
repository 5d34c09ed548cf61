package decision

import (
	"fmt"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// applyOpening turns denials into warnings and drops the patch while the gate is open.
func (d evaluation) applyOpening() {
	if d.Open == nil {
		return
	}
	for i := range d.verdicts {
		if v := &d.verdicts[i]; v.Denies() {
			v.Mode, d.relaxed = v1alpha1.ModeWarn, true
		}
	}
	if d.patch != nil {
		d.patch, d.relaxed = nil, true
	}
}

// openWarnings returns the warning that the open gate changed the result.
func (d *Decision) openWarnings() []string {
	if !d.relaxed {
		return nil
	}
	text := "Sallyport's policies are not enforced: the gate is open"
	return []string{fmt.Sprintf("%s until %s (%s)", text, d.Open.Until.UTC().Format(time.RFC3339), d.Open.Reason)}
}
