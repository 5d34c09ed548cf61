package registration

import (
	"fmt"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

func (reg *pass) findings() map[string]Finding {
	all := map[string]Finding{}
	for name, r := range reg.reports {
		f := r.finding(reg.behind, len(reg.of(name)) > 0, reg.open)
		f.Generation = r.generation
		all[name] = f
	}
	return all
}

// finding returns the reason and message for the condition. Of several problems it reports the worst.
func (r *report) finding(behind []string, registered bool, open *Opening) Finding {
	asked := strings.Join(r.asked, "; ")
	f := Finding{}
	switch {
	case len(r.failed) > 0:
		f.Reason, f.Message = v1alpha1.ReasonRegistrationFailed, sentence(strings.Join(unique(r.failed), "; "))
	case r.broken:
		f.Reason = v1alpha1.ReasonNoGoodRevision
		f.Message = "The policy is not registered until it has a good revision: requests that it matches are admitted without it. See conditions Compiled and ReadsGranted."
	case r.waiting:
		f.Reason = v1alpha1.ReasonWaitingForReplicas
		f.Message = fmt.Sprintf("Waiting for every replica to serve the current policies before registering for %s. Not yet: %s.",
			asked, strings.Join(behind, ", "))
		if registered {
			f.Message += " Until then, the registration stays as it was."
		}
	case len(r.refused) > 0:
		f.Reason, f.Message = v1alpha1.ReasonNotRegistrable, sentence(strings.Join(r.refused, "; "))
		if asked != "" {
			f.Message += " Registered for the rest: " + asked + "."
		}
	case len(r.lacking) > 0:
		f.Reason = v1alpha1.ReasonResourceNotServed
		f.Message = sentence(strings.Join(r.lacking, ". ")) + " The policy is registered for it once the cluster serves it."
		if asked != "" {
			f.Message += " Registered for " + asked + "."
		}
	case asked != "" && open != nil:
		f.Reason = v1alpha1.ReasonGateOpen
		f.Message = fmt.Sprintf("The gate is open %s. Requests for %s are admitted with a warning. To close it: %s",
			open, asked, commands.Line("kubectl", "sallyport", "gate", "close"))
	case asked != "":
		f.Reason, f.Message = v1alpha1.ReasonRegistered, fmt.Sprintf("Registered for %s.", asked)
		if len(r.narrowed) > 0 {
			f.Message += fmt.Sprintf(" Another client excludes namespaces from its webhooks by: %s.", strings.Join(unique(r.narrowed), "; "))
		}
	}
	return f
}

func sentence(text string) string {
	if strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
