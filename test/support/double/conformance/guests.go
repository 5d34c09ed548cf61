package conformance

import (
	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// guests tests what is shown of guests, and asked of people.
var guests = []part{
	{"what a guest says of itself is shown while its machine is on", []string{"SetGuest"}, guestShown},
	{"what the runtime asks people is shown", []string{"Ask"}, questionShown},
}

func guestShown(s *suite) {
	m := s.made("guest")
	says := runtime.Guest{Hostname: "guest", Addresses: []string{"10.0.0.7", "2001:db8::7"}, Tools: v1alpha1.ToolsRunning}
	for _, says.Hostname = range []string{"guest", "renamed"} {
		s.SetGuest(s.T, m, says)
		if diff := cmp.Diff(runtime.Guest{}, s.observe(m).Guest); diff != "" {
			s.Errorf("a guest that is off (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(says, s.on(m).Guest); diff != "" {
			s.Errorf("a guest that is on (-want +got):\n%s", diff)
		}
		s.off(m)
	}
}

func questionShown(s *suite) {
	m := s.made("asked")
	s.on(m)
	asks := v1alpha1.PendingQuestion{Text: "Moved or copied?", Choices: []string{"Moved", "Copied"}}
	s.Ask(s.T, m, asks)
	if diff := cmp.Diff(&asks, s.observe(m).Question); diff != "" {
		s.Errorf("a question (-want +got):\n%s", diff)
	}
}
