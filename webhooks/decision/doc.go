// Package decision answers what the policies say about a request.
//
// A [Question] has the endpoint, the [Review], the policies and the time. [Decider.Decide] evaluates every policy that matches and
// returns a [Decision], which nothing changes afterwards: responses, admissions, records and events are made from it. Policies decide,
// and say what happens if they fail.
//
// Calls go from the callers (Answer, arbitrate, admits, audit) to the gate, which makes the decision (gate, override, patch, secrets,
// reads), and from the decision to its texts (denial, response, override_command).
package decision
