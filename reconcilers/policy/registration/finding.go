package registration

import (
	"fmt"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// findings puts into words what was found out about each policy.
func (l *look) findings() map[string]Finding {
	all := map[string]Finding{}
	for name, r := range l.reports {
		f := r.finding(l.behind, l.registered(name))
		f.Generation = r.generation
		all[name] = f
	}
	return all
}

// finding is what is told of a policy: of several things the one that is worst.
func (r *report) finding(behind []string, registered bool) Finding {
	asked := strings.Join(r.asked, "; ")
	f := Finding{}
	switch {
	case len(r.failed) > 0:
		f.Reason, f.Message = v1alpha1.ReasonRegistrationFailed, sentence(strings.Join(unique(r.failed), "; "))
	case r.broken:
		f.Reason = v1alpha1.ReasonNoGoodRevision
		f.Message = "It is not asked before it has had a good revision: requests that it matches pass. See conditions Compiled and ReadsGranted."
	case r.waiting:
		f.Reason = v1alpha1.ReasonWaitingForReplicas
		f.Message = fmt.Sprintf("The API server is to ask about %s, when every replica decides by the present policies. Not yet: %s.",
			asked, strings.Join(behind, ", "))
		if registered {
			f.Message += " Until then it asks about no more than before."
		}
	case r.settling:
		f.Reason = v1alpha1.ReasonWaitingForReplicas
		f.Message = fmt.Sprintf("The API server is to ask about %s, when it has learned to have it change objects before.", asked)
	case len(r.refused) > 0:
		f.Reason, f.Message = v1alpha1.ReasonNotRegistrable, sentence(strings.Join(r.refused, "; "))
		if asked != "" {
			f.Message += " The API server asks about the rest: " + asked + "."
		}
	case len(r.lacking) > 0:
		f.Reason = v1alpha1.ReasonResourceNotServed
		f.Message = sentence(strings.Join(r.lacking, ". ")) + " The API server will ask about it when there is such a thing."
		if asked != "" {
			f.Message += " The API server asks about " + asked + "."
		}
	case asked != "":
		f.Reason, f.Message = v1alpha1.ReasonRegistered, fmt.Sprintf("The API server asks about %s.", asked)
	}
	return f
}

func sentence(text string) string {
	if strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
