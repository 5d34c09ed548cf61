package webhooks

import (
	"fmt"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// ease has the policies only warn that are against the request.
func (d *Decision) ease() {
	if d.Open == nil {
		return
	}
	for i := range d.verdicts {
		if v := &d.verdicts[i]; v.refuses() {
			v.mode, d.eased = v1alpha1.ModeWarn, true
		}
	}
	if d.patch != nil {
		d.patch, d.eased = nil, true
	}
}

// openWarnings says that the open gate has changed what became of the request.
func (d *Decision) openWarnings() []string {
	if !d.eased {
		return nil
	}
	text := "Sallyport's policies are not enforced: the gate is open"
	return []string{fmt.Sprintf("%s until %s (%s)", text, d.Open.Until.UTC().Format(time.RFC3339), d.Open.Reason)}
}
