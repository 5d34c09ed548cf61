// Package webhooks evaluates policies for admission reviews and answers them.
//
// A [Question] has the endpoint, the [Review], the policies and the time. [Gate.Decide] evaluates every policy that matches and
// returns a [Decision], which is a value: responses, rulings and records are made from it, and a [Recorder] keeps it so that it can
// be replayed. No rule is written here: policies decide, and say what happens if they fail.
//
// Calls go one way: from the callers (handler, answer, arbitrate, admits, audit) to the gate, which fills in the decision (gate,
// override, patch, secrets, reads), and from the decision to its outputs (response, override_command, record, omitted, metrics, events).
package webhooks
