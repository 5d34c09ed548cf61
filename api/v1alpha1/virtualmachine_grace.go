package v1alpha1

import "time"

// DefaultTerminationGracePeriod is how long a guest has to shut down if the spec does not
// say.
const DefaultTerminationGracePeriod = 180 * time.Second

// TerminationGracePeriod is how long the guest has to shut down, as TerminationGracePeriodSeconds says.
func (s *VirtualMachineSpec) TerminationGracePeriod() time.Duration {
	if s.TerminationGracePeriodSeconds == nil {
		return DefaultTerminationGracePeriod
	}
	return time.Duration(*s.TerminationGracePeriodSeconds) * time.Second
}
